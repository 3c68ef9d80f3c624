// Command keda prints the lag of a group in a topic as KEDA's scaler for Kafka computes it:
//
//	keda HOST:PORT GROUP TOPIC
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

func main() {
	ctx := context.Background()
	scaler, err := scalers.NewKafkaScaler(ctx, &scalersconfig.ScalerConfig{
		TriggerMetadata: map[string]string{
			"bootstrapServers":   os.Args[1],
			"consumerGroup":      os.Args[2],
			"topic":              os.Args[3],
			"allowIdleConsumers": "true", // else the lag is cut off at the threshold times the partitions
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer scaler.Close(ctx)
	metrics, isActive, err := scaler.GetMetricsAndActivity(ctx, "lag")
	if err != nil {
		log.Fatal(err)
	}
	lag := metrics[0].Value.Value()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"active": isActive, "lag": lag}); err != nil {
		log.Fatal(err)
	}
}
