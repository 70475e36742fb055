// Conformance runs every case in a folder of cases. No other client may use the server:
//
//	conformance <url> <folder of the cases> <folder lua/>
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate/scripts"
)

var ctx = context.Background()

type testCase struct {
	Name    string
	SlackMS int `json:"slack_ms"`
	Steps   []json.RawMessage
}

// A step has the fields of every kind of step. Its inner steps are parsed when they run, after {each} is replaced.
type step struct {
	Call, Error, Subscribe, Unsubscribe, Inbox, Secret, Silence string
	On, Reply, Each                                             any
	Keys, Argv, Message, Command                                []any
	PauseMS                                                     int `json:"pause_ms"`
	Ends                                                        map[string]any
	Full                                                        *bool
	Steps                                                       []json.RawMessage
}

// A run is one attempt at a case. A failed check panics.
type run struct {
	rdb           *redis.Client
	scripts       map[string]*scripts.Script
	prefix        string
	step          json.RawMessage
	names         map[string]int64 // the value of each bound $name
	before, after int64            // the server's time around the last call
	inboxes       map[string]*redis.PubSub
	paused        time.Duration
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: conformance <url> <folder of the cases> <folder lua/>")
	}
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	scripts, err := scripts.Load(os.DirFS(os.Args[3]))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(options)
	if err := rdb.Ping(ctx).Err(); err != nil {
		log.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(os.Args[2], "*.json"))
	passed, failed := 0, 0
	for _, file := range files {
		var cases []testCase
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &cases)
		}
		if err != nil {
			log.Fatal(file, ": ", err)
		}
		for _, c := range cases {
			if problem := c.run(rdb, scripts); problem != nil {
				fmt.Printf("%s: %s: %v\n", filepath.Base(file), c.Name, problem)
				failed++
			} else {
				passed++
			}
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// run repeats an attempt that failed and took too long: such a result is meaningless.
func (c testCase) run(rdb *redis.Client, scripts map[string]*scripts.Script) (problem error) {
	slack := time.Duration(cmp.Or(c.SlackMS, 20)) * time.Millisecond
	for range 100 {
		r := run{rdb: rdb, scripts: scripts, prefix: "conformance:" + rand.Text()}
		r.names, r.inboxes = map[string]int64{}, map[string]*redis.PubSub{}
		began := time.Now()
		problem = r.attempt(c.Steps)
		if problem == nil || time.Since(began)-r.paused <= slack {
			break
		}
	}
	return problem
}

func (r *run) attempt(steps []json.RawMessage) (problem error) {
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Errorf("%s: %v", r.step, p)
		}
		for _, pubsub := range r.inboxes {
			pubsub.Close()
		}
		r.rdb.ConfigSet(ctx, "maxmemory", "0")
	}()
	r.steps(steps)
	for channel := range r.inboxes {
		r.silence(channel)
	}
	return nil
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (r *run) steps(texts []json.RawMessage) {
	for _, text := range texts {
		var s step
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&s); err != nil {
			panic(err)
		}
		r.step = text
		switch {
		case s.Call != "":
			r.call(s)
		case s.Subscribe != "":
			channel := r.text(s.Subscribe)
			r.inboxes[channel] = r.rdb.Subscribe(ctx, channel)
			must(r.inboxes[channel].Receive(ctx))
		case s.Unsubscribe != "":
			channel := r.text(s.Unsubscribe)
			r.silence(channel)
			r.inboxes[channel].Unsubscribe(ctx, channel)
			must(r.inboxes[channel].Receive(ctx))
			r.inboxes[channel].Close()
			delete(r.inboxes, channel)
		case s.Message != nil:
			r.message(s)
		case s.Silence != "":
			r.silence(r.text(s.Silence))
		case s.PauseMS > 0:
			began := time.Now()
			time.Sleep(time.Duration(s.PauseMS) * time.Millisecond)
			r.paused += time.Since(began)
		case s.Ends != nil:
			r.ends(s.Ends)
		case s.Command != nil:
			reply := must(r.rdb.Do(ctx, r.arguments(s.Command)...).Result())
			if s.Reply != nil {
				r.compare(s.Reply, reply)
			}
		case s.Full != nil:
			limit := map[bool]string{true: "1", false: "0"}[*s.Full]
			must(r.rdb.ConfigSet(ctx, "maxmemory", limit).Result())
		case s.Each != nil:
			r.each(s)
		default:
			panic("unknown kind of step")
		}
	}
}

func (r *run) each(s step) {
	values, isList := s.Each.([]any)
	if !isList {
		for n := range must(s.Each.(json.Number).Int64()) {
			values = append(values, fmt.Sprint(n+1))
		}
	}
	for _, value := range values {
		whole := must(json.Marshal(value))
		var filled []json.RawMessage
		for _, text := range s.Steps {
			text = bytes.ReplaceAll(text, []byte(`"{each}"`), whole)
			text = bytes.ReplaceAll(text, []byte(`{each}`), bytes.Trim(whole, `"`))
			filled = append(filled, text)
		}
		r.steps(filled)
	}
}

func (r *run) call(s step) {
	script := r.scripts[s.Call]
	if s.Keys == nil {
		on, isList := s.On.([]any)
		if !isList {
			on = []any{cmp.Or(s.On, any("m"))}
		}
		for _, name := range on {
			for _, key := range script.Keys {
				if key != "..." {
					s.Keys = append(s.Keys, fmt.Sprintf("@%s:%s", key, name))
				}
			}
		}
	}
	var keys []string
	for _, key := range s.Keys {
		keys = append(keys, r.text(key))
	}
	arguments := r.arguments(s.Argv)
	delete(r.names, "$now")
	delete(r.names, "$us")
	r.before = r.now()
	reply, err := script.Run(ctx, r.rdb, keys, arguments...).Result()
	r.after = r.now()
	if s.Error == "" {
		r.compare(s.Reply, must(reply, err))
		count(script.Replies, reply)
		return
	}
	expected := r.text(s.Error)
	if err == nil || !strings.Contains(err.Error(), expected) ||
		strings.HasPrefix(expected, "LUAGATE") && err.Error() != expected {
		panic(fmt.Sprintf("expected the error %s, got %v, error %v", expected, reply, err))
	}
}

// count checks the number of fields in a reply against the manifest. One field without a word is the reply itself.
func count(replies map[string][]string, reply any) {
	fields, isPlain := replies[""]
	if isPlain && len(fields) == 1 {
		return
	}
	values := reply.([]any)
	if !isPlain {
		fields = append([]string{"word"}, replies[values[0].(string)]...)
	}
	if len(values) != len(fields) {
		panic(fmt.Sprintf("expected the fields %v, got %v", fields, values))
	}
}

func (r *run) now() int64 {
	return must(r.rdb.Time(ctx).Result()).UnixMilli()
}

// next returns the next unread message.
func (r *run) next(channel string) string {
	return must(r.inboxes[channel].ReceiveTimeout(ctx, time.Second)).(*redis.Message).Payload
}

func (r *run) message(s step) {
	text := r.next(r.text(s.Inbox))
	if s.Secret != "" {
		at := strings.LastIndex(text, " ")
		if text[at+1:] != fmt.Sprintf("%x", sha1.Sum([]byte(s.Secret+text[:at]))) {
			panic("wrong signature: " + text)
		}
		text = text[:at]
	}
	var words []any
	for _, word := range strings.Split(text, " ") {
		if number, err := strconv.ParseInt(word, 10, 64); err == nil {
			words = append(words, number)
		} else {
			words = append(words, word)
		}
	}
	r.compare(s.Message, words)
}

// silence publishes a marker, and checks that the marker is the next message.
func (r *run) silence(channel string) {
	must(r.rdb.Publish(ctx, channel, "silence").Result())
	if text := r.next(channel); text != "silence" {
		panic("unexpected message: " + text)
	}
}

func (r *run) ends(expected map[string]any) {
	for key, pattern := range expected {
		pipe := r.rdb.Pipeline()
		before, left, after := pipe.Time(ctx), pipe.Do(ctx, "PTTL", r.text(key)), pipe.Time(ctx)
		must(pipe.Exec(ctx))
		end, slack := must(left.Int64()), int64(0)
		if end >= 0 {
			end += after.Val().UnixMilli()
			slack = 2 + after.Val().Sub(before.Val()).Milliseconds()
		}
		if !r.fits(fmt.Sprint(pattern), end, slack) {
			panic(fmt.Sprintf("%s: got %d; bound names: %v", key, end, r.names))
		}
	}
}

func (r *run) arguments(values []any) (texts []any) {
	for _, value := range values {
		texts = append(texts, r.text(value))
	}
	return texts
}
