package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"luagate"
)

// command is one line of the input.
type command struct {
	name, verb string
	values     map[string]string   // the keys before the first want
	wants      []map[string]string // each begins with its name
}

func parse(line string) (command, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return command{}, fmt.Errorf("got %q. Accepted: CALL VERB KEY=VALUE ...", line)
	}
	c := command{name: words[0], verb: words[1], values: map[string]string{}}
	values := c.values
	for _, word := range words[2:] {
		key, escaped, _ := strings.Cut(word, "=")
		value, err := url.PathUnescape(escaped)
		if err != nil {
			return c, err
		}
		if key == "name" {
			values = map[string]string{}
			c.wants = append(c.wants, values)
		}
		values[key] = value
	}
	return c, nil
}

// of returns the value of a key: of the command, or of its first want.
func (c command) of(key string) string {
	if value, given := c.values[key]; given || len(c.wants) == 0 {
		return value
	}
	return c.wants[0][key]
}

// duration returns milliseconds; without the key 0.
func (c command) duration(key string) time.Duration { return ms(c.of(key)) }

func ms(text string) time.Duration { return time.Duration(number(text)) * time.Millisecond }

func number(text string) int {
	n, _ := strconv.Atoi(cmp.Or(text, "0"))
	return n
}

// all returns the semaphores of the wants, and the permits of each.
func (c command) all(gate *luagate.Gate) (wants []luagate.Want) {
	for _, want := range c.wants {
		wants = append(wants, semaphore(gate, want).Want(number(cmp.Or(want["permits"], "1"))))
	}
	return wants
}

func semaphore(gate *luagate.Gate, want map[string]string) *luagate.Semaphore {
	var s *luagate.Semaphore
	switch want["kind"] {
	case "mutex":
		s = gate.Mutex(want["name"])
	case "read":
		s = gate.RWLock(want["name"]).Read
	case "write":
		s = gate.RWLock(want["name"]).Write
	default:
		s = gate.Semaphore(want["name"], number(cmp.Or(want["limit"], "1")))
	}
	lease, isRenewed := strings.CutSuffix(want["lease"], "+")
	s.Lease, s.AutoRenew = ms(lease), isRenewed
	if lease == "permanent" {
		s.Lease = luagate.Permanent
	}
	s.MaxWaiting, s.AtLeast, s.HeadStart = number(want["max_waiting"]), ms(want["at_least"]), ms(want["head_start"])
	s.Label, s.Strict = want["label"], want["strict"] == "1"
	return s
}
