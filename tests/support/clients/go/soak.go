package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Numbers are numbers by name; nil: access denied.
type Numbers map[string][]int64

// Asking is a client of a library, of which asker.py describes the questions.
type Asking interface {
	offsets(groups []string) (Numbers, error)
	members(groups []string) (Numbers, error)
	groups() ([]string, error)
	ends(topics []string) (Numbers, error)
	configs() (map[string]string, error)
	close()
}

var settings = []string{"offsetlake.read.until", "offsetlake.log.ends.sampled.at"}

func soak(open func(words []string) (Asking, error)) {
	tasks := map[string]chan []string{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		number := words[0]
		if words[1] == "open" {
			tasks[number] = make(chan []string, 8)
			go work(number, tasks[number], open)
		}
		tasks[number] <- words[1:]
		if words[1] == "close" {
			delete(tasks, number)
		}
	}
}

func work(number string, tasks chan []string, open func(words []string) (Asking, error)) {
	var client Asking
	for words := range tasks {
		if words[0] == "close" {
			if client != nil {
				client.close()
			}
			return
		}
		var err error
		if client == nil {
			client, err = open(words[1:])
		}
		line := ""
		if err == nil {
			line, err = answer(client, words)
		}
		if err != nil {
			line = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s %s\n", number, line)
	}
}

func answer(client Asking, words []string) (string, error) {
	var numbers Numbers
	var err error
	shown := []string{}
	switch words[0] {
	case "offsets":
		numbers, err = client.offsets(words[1:])
	case "members":
		numbers, err = client.members(words[1:])
	case "ends":
		numbers, err = client.ends(words[1:])
	case "groups":
		var names []string
		names, err = client.groups()
		added := []int64{}
		for _, name := range names {
			if strings.HasPrefix(name, "new-") {
				added = append(added, number(name[4:]))
			}
		}
		numbers = Numbers{"new": added}
		shown = append(shown, fmt.Sprintf("groups=%d:0:0", len(names)-len(added)))
	}
	if err != nil {
		return "", err
	}
	for name, some := range numbers {
		shown = append(shown, summary(name, some))
	}
	configs, err := client.configs()
	if err != nil {
		return "", err
	}
	said := []string{}
	for _, name := range settings {
		value := configs[name]
		if value == "" {
			value = "-"
		}
		said = append(said, value)
	}
	return strings.Join(append(said, shown...), " "), nil
}

func number(text string) int64 {
	found, _ := strconv.ParseInt(text, 10, 64)
	return found
}

func summary(name string, numbers []int64) string {
	if numbers == nil {
		return name + "=denied"
	}
	var least, largest int64
	for i, one := range numbers {
		if i == 0 || one < least {
			least = one
		}
		if i == 0 || one > largest {
			largest = one
		}
	}
	return fmt.Sprintf("%s=%d:%d:%d", name, len(numbers), least, largest)
}

type soakKadm struct {
	client *kgo.Client
	admin  *kadm.Client
}

func openKadm(words []string) (Asking, error) {
	options := []kgo.Opt{kgo.SeedBrokers(words[0])}
	if len(words) > 1 {
		pem, err := os.ReadFile(words[1])
		if err != nil {
			return nil, err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		credentials := scram.Auth{User: words[2], Pass: words[3]}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
			kgo.SASL(credentials.AsSha256Mechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return soakKadm{client, kadm.NewClient(client)}, nil
}

func within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	time.AfterFunc(60*time.Second, cancel)
	return ctx
}

func (one soakKadm) offsets(groups []string) (Numbers, error) {
	numbers := Numbers{}
	for name, fetched := range one.admin.FetchManyOffsets(within(), groups...) {
		if errors.Is(fetched.Err, kerr.GroupAuthorizationFailed) {
			numbers[name] = nil
			continue
		}
		if fetched.Err != nil {
			return nil, fetched.Err
		}
		own := []int64{}
		fetched.Fetched.Each(func(found kadm.OffsetResponse) { own = append(own, found.At) })
		numbers[name] = own
	}
	return numbers, nil
}

func (one soakKadm) members(groups []string) (Numbers, error) {
	described, err := one.admin.DescribeGroups(within(), groups...)
	numbers := Numbers{}
	for _, group := range described.Sorted() {
		if group.Err != nil {
			return nil, group.Err
		}
		own := []int64{}
		for _, member := range group.Members {
			own = append(own, number(member.MemberID[2:]))
		}
		numbers[group.Group] = own
	}
	return numbers, err
}

func (one soakKadm) groups() ([]string, error) {
	listed, err := one.admin.ListGroups(within())
	return listed.Groups(), err
}

func (one soakKadm) ends(topics []string) (Numbers, error) {
	listed, err := one.admin.ListEndOffsets(within(), topics...)
	numbers := Numbers{}
	listed.Each(func(found kadm.ListedOffset) {
		if found.Err != nil {
			err = found.Err
		}
		numbers[found.Topic] = append(numbers[found.Topic], found.Offset)
	})
	return numbers, err
}

func (one soakKadm) configs() (map[string]string, error) {
	described, err := one.admin.DescribeBrokerConfigs(within(), 1)
	values := map[string]string{}
	for _, broker := range described {
		if broker.Err != nil {
			err = broker.Err
		}
		for _, config := range broker.Configs {
			values[config.Key] = config.MaybeValue()
		}
	}
	return values, err
}

func (one soakKadm) close() { one.client.Close() }

type soakSarama struct {
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func openSarama(words []string) (Asking, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	client, err := sarama.NewClient([]string{words[0]}, config)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	return soakSarama{client, admin}, nil
}

func (one soakSarama) offsets(groups []string) (Numbers, error) {
	numbers := Numbers{}
	for _, group := range groups { // one request each
		fetched, err := one.admin.ListConsumerGroupOffsets(group, nil)
		if err != nil {
			return nil, err
		}
		if fetched.Err != sarama.ErrNoError {
			return nil, fetched.Err
		}
		own := []int64{}
		for _, partitions := range fetched.Blocks {
			for _, block := range partitions {
				own = append(own, block.Offset)
			}
		}
		numbers[group] = own
	}
	return numbers, nil
}

func (one soakSarama) members(groups []string) (Numbers, error) {
	described, err := one.admin.DescribeConsumerGroups(groups)
	numbers := Numbers{}
	for _, group := range described {
		if group.Err != sarama.ErrNoError {
			return nil, group.Err
		}
		own := []int64{}
		for id := range group.Members {
			own = append(own, number(id[2:]))
		}
		numbers[group.GroupId] = own
	}
	return numbers, err
}

func (one soakSarama) groups() ([]string, error) {
	listed, err := one.admin.ListConsumerGroups()
	names := []string{}
	for name := range listed {
		names = append(names, name)
	}
	return names, err
}

func (one soakSarama) ends(topics []string) (Numbers, error) {
	return nil, errors.New("Sarama asks for the log end of each partition by itself")
}

func (one soakSarama) configs() (map[string]string, error) {
	entries, err := one.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1"})
	values := map[string]string{}
	for _, entry := range entries {
		values[entry.Name] = entry.Value
	}
	return values, err
}

func (one soakSarama) close() { _ = one.admin.Close() }
