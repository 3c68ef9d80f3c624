package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func askKadm(bootstrap string, groups []string) (answers Answers, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return answers, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	admin := kadm.NewClient(client)
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		return answers, err
	}
	for _, group := range listed.Sorted() {
		answers.Listed = append(answers.Listed, []string{group.Group, group.ProtocolType, group.State})
	}
	classic, err := admin.DescribeGroups(ctx, groups...)
	if err != nil {
		return answers, err
	}
	consumers, err := admin.DescribeConsumerGroups(ctx, groups...)
	if err != nil {
		return answers, err
	}
	for _, group := range classic.Sorted() {
		answers.Described = append(answers.Described, classicOfKadm(group))
	}
	for _, group := range consumers.Sorted() {
		answers.Described = append(answers.Described, consumerOfKadm(group))
	}
	answers.Offsets = map[string][]Partition{}
	for name, fetched := range admin.FetchManyOffsets(ctx, groups...) {
		if fetched.Err != nil {
			return answers, fetched.Err
		}
		partitions := []Partition{}
		fetched.Fetched.Each(func(one kadm.OffsetResponse) {
			partitions = append(partitions, Partition{one.Topic, one.Partition, one.At, &one.Metadata, nil})
		})
		answers.Offsets[name] = inOrder(partitions)
	}
	ends, err := admin.ListEndOffsets(ctx)
	if err != nil {
		return answers, err
	}
	ends.Each(func(one kadm.ListedOffset) {
		if one.Topic != "__consumer_offsets" && one.Topic != "__transaction_state" {
			answers.Ends = append(answers.Ends, Partition{one.Topic, one.Partition, one.Offset, nil, nil})
		}
	})
	answers.Ends = inOrder(answers.Ends)
	lags, err := admin.Lag(ctx, groups...)
	if err != nil {
		return answers, err
	}
	answers.Lag = map[string][]Partition{}
	for name, group := range lags {
		partitions := []Partition{}
		for _, one := range group.Lag.Sorted() {
			lag := one.Lag
			partitions = append(partitions, Partition{one.Topic, one.Partition, one.End.Offset, nil, &lag})
		}
		answers.Lag[name] = inOrder(partitions)
	}
	deleted, err := admin.DeleteGroup(ctx, "nope")
	answers.Refused = text(err) + text(deleted.Err)
	return answers, nil
}

func classicOfKadm(group kadm.DescribedGroup) Group {
	described := Group{group.Group, group.State, group.ProtocolType, group.Protocol, nil, text(group.Err)}
	for _, one := range group.Members {
		member := Member{one.MemberID, instance(one.InstanceID), one.ClientID, one.ClientHost, []string{}}
		if assigned, is := one.Assigned.AsConsumer(); is {
			for _, topic := range assigned.Topics {
				member.Assigned = append(member.Assigned, named(topic.Topic, topic.Partitions...)...)
			}
		}
		described.Members = append(described.Members, member)
	}
	described.Members = byID(described.Members)
	return described
}

func consumerOfKadm(group kadm.DescribedConsumerGroup) Group {
	described := Group{group.Group, group.State, "consumer", "", nil, text(group.Err)}
	for _, one := range group.Members {
		member := Member{one.MemberID, instance(one.InstanceID), one.ClientID, one.ClientHost, []string{}}
		for _, topic := range one.Assignment.Sorted() {
			member.Assigned = append(member.Assigned, named(topic.Topic, topic.Partitions...)...)
		}
		described.Members = append(described.Members, member)
	}
	described.Members = byID(described.Members)
	return described
}
