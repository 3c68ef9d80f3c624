package main

import (
	"os"
	"sort"

	"github.com/IBM/sarama"
)

// SARAMA_VERSION names the release of Kafka whose requests Sarama sends; without it its default is used.
func askSarama(bootstrap string, groups []string) (answers Answers, err error) {
	config := sarama.NewConfig()
	if name := os.Getenv("SARAMA_VERSION"); name != "" {
		if config.Version, err = sarama.ParseKafkaVersion(name); err != nil {
			return answers, err
		}
	}
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return answers, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return answers, err
	}
	defer func() { _ = admin.Close() }()
	listed, err := admin.ListConsumerGroups()
	if err != nil {
		return answers, err
	}
	for group, kind := range listed {
		answers.Listed = append(answers.Listed, []string{group, kind})
	}
	sort.Slice(answers.Listed, func(i, j int) bool { return answers.Listed[i][0] < answers.Listed[j][0] })
	described, err := admin.DescribeConsumerGroups(groups)
	if err != nil {
		return answers, err
	}
	for _, group := range described {
		answers.Described = append(answers.Described, groupOfSarama(group))
	}
	sort.Slice(answers.Described, func(i, j int) bool { return answers.Described[i].Group < answers.Described[j].Group })
	topics, err := client.Topics()
	if err != nil {
		return answers, err
	}
	asked := map[string][]int32{}
	for _, topic := range topics {
		if topic == "__consumer_offsets" || topic == "__transaction_state" {
			continue
		}
		if asked[topic], err = client.Partitions(topic); err != nil {
			return answers, err
		}
		for _, partition := range asked[topic] {
			end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
			if err != nil {
				return answers, err
			}
			answers.Ends = append(answers.Ends, Partition{topic, partition, end, nil, nil})
		}
	}
	answers.Ends = inOrder(answers.Ends)
	answers.Offsets = map[string][]Partition{}
	for _, group := range groups {
		fetched, err := admin.ListConsumerGroupOffsets(group, asked)
		if err != nil {
			return answers, err
		}
		partitions := []Partition{}
		for topic, blocks := range fetched.Blocks {
			for partition, block := range blocks {
				partitions = append(partitions, Partition{topic, partition, block.Offset, &block.Metadata, nil})
			}
		}
		answers.Offsets[group] = inOrder(partitions)
	}
	answers.Refused = text(admin.DeleteConsumerGroup("nope"))
	return answers, nil
}

func groupOfSarama(group *sarama.GroupDescription) Group {
	described := Group{group.GroupId, group.State, group.ProtocolType, group.Protocol, nil, ""}
	if group.Err != sarama.ErrNoError {
		described.Error = group.Err.Error()
	}
	for _, one := range group.Members {
		member := Member{one.MemberId, instance(one.GroupInstanceId), one.ClientId, one.ClientHost, []string{}}
		if assigned, err := one.GetMemberAssignment(); err == nil && assigned != nil && group.ProtocolType == "consumer" {
			for topic, partitions := range assigned.Topics {
				member.Assigned = append(member.Assigned, named(topic, partitions...)...)
			}
		}
		described.Members = append(described.Members, member)
	}
	described.Members = byID(described.Members)
	return described
}
