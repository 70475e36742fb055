// Driver runs the commands of the fault suite: see tests/languages/faults/README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/pprof"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"luagate"
)

// driver has what the commands have made, by the names that they gave.
type driver struct {
	mu      sync.Mutex // guards the fields below and the output
	gates   map[string]*gate
	permits map[string]held
	cancels map[string]context.CancelFunc // of the calls that run
}

type gate struct {
	*luagate.Gate
	rdb    redis.UniversalClient
	opened command
}

// held is a permit or several permits.
type held struct {
	permit  *luagate.Permit
	permits *luagate.Permits
}

func main() {
	d := driver{gates: map[string]*gate{}, permits: map[string]held{}, cancels: map[string]context.CancelFunc{}}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	for input.Scan() {
		c, err := parse(input.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, "driver:", err)
			os.Exit(2)
		}
		if c.verb == "exit" {
			d.say(c.name, "done")
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		d.mu.Lock()
		d.cancels[c.name] = cancel
		d.mu.Unlock()
		go d.run(ctx, c)
	}
}

func (d *driver) run(ctx context.Context, c command) {
	words, err := d.answer(ctx, c)
	if err != nil {
		words = describe(err)
	}
	d.mu.Lock()
	d.cancels[c.name]()
	delete(d.cancels, c.name)
	d.mu.Unlock()
	d.say(c.name, words...)
}

// escaped are the characters that a value of a reply may not contain as they are.
var escaped = regexp.MustCompile(`[\s\pC%=]`)

// say writes a line. Each word but the first has the form KEY=VALUE.
func (d *driver) say(name string, words ...string) {
	for i, word := range words {
		if key, value, hasValue := strings.Cut(word, "="); hasValue {
			words[i] = key + "=" + escaped.ReplaceAllStringFunc(value, percent)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Println(name, strings.Join(words, " "))
}

func (d *driver) answer(ctx context.Context, c command) ([]string, error) {
	switch c.verb {
	case "open":
		return d.open(c)
	case "acquire", "try":
		return d.acquire(ctx, c)
	case "use":
		return d.use(ctx, c)
	case "refresh", "release", "state", "await_lost":
		return d.withPermit(ctx, c)
	case "inspect", "revoke", "resize":
		return d.withSemaphore(ctx, c)
	case "counters":
		return counters(d.gate(c).Counters()), nil
	case "cancel":
		d.mu.Lock()
		cancel := d.cancels[c.of("call")]
		d.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case "close":
		return []string{"done"}, d.gate(c).Close()
	case "close_client":
		return []string{"done"}, d.gate(c).rdb.Close()
	case "threads":
		return []string{"done", fmt.Sprint("count=", pprof.Lookup("goroutine").Count())}, nil
	case "arguments":
		return checkArguments()
	case "clients":
		return checkClients(c)
	default:
		return nil, fmt.Errorf("unknown verb %s", c.verb)
	}
	return []string{"done"}, nil
}

func (d *driver) gate(c command) *gate {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gates[c.of("gate")]
}

func (d *driver) keep(c command, h held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.permits[c.of("permit")] = h
}

// describe returns the words for an error.
func describe(err error) []string {
	var denied *luagate.DeniedError
	var full *luagate.LineFullError
	var late *luagate.TimedOutError
	var above *luagate.AboveLimitError
	var mismatch *luagate.LimitMismatchError
	var server redis.Error
	kind, more := "other", []string(nil)
	switch {
	case errors.As(err, &denied):
		kind, more = "denied", used(denied.Usage)
	case errors.As(err, &full):
		kind, more = "full", used(full.Usage)
	case errors.As(err, &above):
		kind, more = "above_limit", []string{fmt.Sprint("limit=", above.Limit)}
	case errors.As(err, &mismatch):
		kind, more = "limit_mismatch", []string{fmt.Sprint("limit=", mismatch.Limit)}
	case errors.Is(err, luagate.ErrInvalid):
		kind = "invalid"
	case errors.Is(err, luagate.ErrLost):
		kind = "lost"
	case errors.Is(err, luagate.ErrRevoked):
		kind = "revoked"
	case errors.Is(err, luagate.ErrClosed):
		kind = "closed"
	case errors.Is(err, luagate.ErrNoPermission):
		kind = "permission"
	case errors.As(err, &late) && errors.Is(err, context.DeadlineExceeded):
		kind, more = "timed_out", used(late.Usage)
	case errors.Is(err, context.Canceled):
		kind = "cancelled"
	case errors.Is(err, luagate.ErrUnreachable):
		kind = "unreachable"
	case errors.As(err, &server):
		kind = "server"
	}
	words := []string{"error", "kind=" + kind, fmt.Sprintf("type=%T", err), "message=" + err.Error()}
	if kind == "permission" {
		words = append(words, fmt.Sprintf("logged=%+v %#v", err, err))
	}
	return append(words, more...)
}

func used(u luagate.Usage) []string {
	next := u.NextExpiry.Milliseconds()
	if u.NextExpiry < 0 {
		next = -1
	}
	return []string{fmt.Sprint("in_use=", u.InUse), fmt.Sprint("limit=", u.Limit), fmt.Sprint("waiting=", u.Waiting),
		fmt.Sprint("next_expiry=", next)}
}

func percent(text string) (escaped string) {
	for _, b := range []byte(text) {
		escaped += fmt.Sprintf("%%%02X", b)
	}
	return escaped
}
