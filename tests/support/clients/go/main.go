// Clients asks a cluster about its groups with a client library of Go, and prints the answers as JSON.
//
//	clients kadm HOST:PORT GROUP...
//	clients sarama HOST:PORT GROUP...
//
// or asks with many clients as it is told by lines (soak.go): clients soak-kadm, clients soak-sarama.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
)

// Partition is an offset of a topic partition; nil where the client has none.
type Partition struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Metadata  *string `json:"metadata,omitempty"`
	Lag       *int64  `json:"lag,omitempty"`
}

// Member is a member of a group, and what it is assigned.
type Member struct {
	ID       string   `json:"id"`
	Instance string   `json:"instance"`
	Client   string   `json:"client"`
	Host     string   `json:"host"`
	Assigned []string `json:"assigned"`
}

// Group is what a group is described by.
type Group struct {
	Group    string   `json:"group"`
	State    string   `json:"state"`
	Type     string   `json:"type"`
	Protocol string   `json:"protocol"`
	Members  []Member `json:"members"`
	Error    string   `json:"error,omitempty"`
}

// Answers is all that is asked.
type Answers struct {
	Listed    [][]string             `json:"listed"`
	Described []Group                `json:"described"`
	Offsets   map[string][]Partition `json:"offsets"`
	Ends      []Partition            `json:"ends"`
	Lag       map[string][]Partition `json:"lag,omitempty"`
	Refused   string                 `json:"refused"`
}

func main() {
	many := map[string]func([]string) (Asking, error){"soak-kadm": openKadm, "soak-sarama": openSarama}
	if open := many[os.Args[1]]; open != nil {
		soak(open)
		return
	}
	libraries := map[string]func(string, []string) (Answers, error){"kadm": askKadm, "sarama": askSarama}
	answers, err := libraries[os.Args[1]](os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(answers)
}

func inOrder(partitions []Partition) []Partition {
	sort.Slice(partitions, func(i, j int) bool {
		a, b := partitions[i], partitions[j]
		return a.Topic < b.Topic || a.Topic == b.Topic && a.Partition < b.Partition
	})
	return partitions
}

func byID(members []Member) []Member {
	for _, member := range members {
		sort.Strings(member.Assigned)
	}
	sort.Slice(members, func(i, j int) bool { return members[i].ID < members[j].ID })
	return members
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func instance(id *string) string {
	if id == nil {
		return ""
	}
	return *id
}

func named(topic string, partitions ...int32) []string {
	names := []string{}
	for _, partition := range partitions {
		names = append(names, fmt.Sprintf("%s:%d", topic, partition))
	}
	return names
}
