package luagate

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"luagate/scripts"
)

// The kinds of errors. Compare with errors.Is. A context that ended is context.DeadlineExceeded or
// context.Canceled; after a deadline, the error of a wait is a *TimedOutError. Every other error of the
// server is a redis.Error.
var (
	// ErrDenied: TryAcquire did not grant. The error is a *DeniedError.
	ErrDenied = errors.New("not enough permits are free")
	// ErrLineFull: MaxWaiting callers wait in line already. The error is a *LineFullError.
	ErrLineFull = errors.New("the line is full")
	// ErrAboveLimit: more permits than the limit in force, so waiting cannot help. The error is an
	// *AboveLimitError.
	ErrAboveLimit = errors.New("more permits than the limit in force")
	// ErrLimitMismatch: the semaphore is Strict, and another limit is in force. The error is a
	// *LimitMismatchError.
	ErrLimitMismatch = errors.New("another limit is in force")
	// ErrLost: the lease of the permit ended, or it was released or revoked.
	ErrLost = errors.New("the permit is lost: its lease ended, or it was released or revoked. Stop the work that it protects, " +
		"then acquire again")
	// ErrRevoked: another client removed the caller from the line.
	ErrRevoked = errors.New("the place in line was revoked. Call again to join the end of the line")
	// ErrClosed: Close was called, for the gate or for a client of sentinels.
	ErrClosed = errors.New("the gate is closed. Create another one with New")
	// ErrInvalid: an argument is not valid. Nothing was sent. The error says what is accepted.
	ErrInvalid = errors.New("invalid")
	// ErrNoPermission: the ACL or the password of the server refuses the client. The error says what to add.
	ErrNoPermission = errors.New("the server refuses the client")
	// ErrUnexpectedReply: the scripts never return this reply. Whether the call had an effect is unknown.
	ErrUnexpectedReply = scripts.ErrUnexpectedReply
	// ErrUnreachable: no connection, or no reply in time. The error wraps the last error of go-redis.
	ErrUnreachable = errors.New("the server cannot be reached")
)

// Usage is the state of a semaphore when it refused a call.
type Usage struct {
	Name         string        // of the semaphore
	InUse, Limit int           // permits in use, and the limit in force
	Waiting      int           // callers in line
	NextExpiry   time.Duration // until the next lease ends, unless it is renewed; negative: no lease ends
}

// RetryAfter estimates the time until a permit is free for the caller: hold × (Waiting + 1) / Limit, at least
// 1 ms. hold is the typical time for which a permit is held. It sends nothing.
func (u Usage) RetryAfter(hold time.Duration) time.Duration {
	estimate := float64(hold) * (float64(u.Waiting) + 1) / float64(max(1, u.Limit))
	if estimate >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(time.Millisecond, time.Duration(estimate))
}

func (u Usage) String() string {
	next := "never"
	if u.NextExpiry >= 0 {
		next = fmt.Sprintf("in %v or later", u.NextExpiry)
	}
	return fmt.Sprintf("%d of %d permits are in use, waiting in line: %d, next lease end: %s", u.InUse, u.Limit, u.Waiting, next)
}

// DeniedError: too few permits are free, or callers wait in line.
type DeniedError struct{ Usage }

func (e *DeniedError) Error() string {
	return fmt.Sprintf("luagate: %s: %v: %v. Try again later, or wait in line with Acquire", e.Name, ErrDenied, e.Usage)
}

// Is makes it an ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// LineFullError: the line has MaxWaiting waiters or more.
type LineFullError struct {
	Usage
	MaxWaiting int
}

func (e *LineFullError) Error() string {
	return fmt.Sprintf("luagate: %s: %v, MaxWaiting is %d: %v. Try again later, or raise MaxWaiting", e.Name, ErrLineFull,
		e.MaxWaiting, e.Usage)
}

// Is makes it an ErrLineFull.
func (e *LineFullError) Is(target error) bool { return target == ErrLineFull }

// TimedOutError: the deadline of the context ended the wait. The numbers are those of the last reply.
// NextExpiry can also be negative because that reply did not contain it. Without any reply, Limit is 0, and
// nothing is known.
type TimedOutError struct {
	Usage
	cause  error
	isSent bool // the deadline had not ended before the call
}

func (e *TimedOutError) Error() string {
	why := fmt.Sprintf("the server did not answer. Check its address, TLS and load: %v", e.cause)
	switch {
	case !e.isSent:
		why = "the deadline of the context had ended before the call. Nothing was sent"
	case e.Limit > 0:
		why = fmt.Sprintf("%v. Try again later", e.Usage)
	}
	return fmt.Sprintf("luagate: %s: not granted in time: %s", e.Name, why)
}

// Unwrap makes it the error of the context.
func (e *TimedOutError) Unwrap() error { return e.cause }

// timedOut adds the usage of the semaphore to the error of a wait, if a deadline ended it.
func timedOut(err error, of Usage, isSent bool) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &TimedOutError{of, err, isSent}
	}
	return err
}

// AboveLimitError: the caller asked for more permits than the limit in force.
type AboveLimitError struct {
	Name           string // of the semaphore
	Permits, Limit int    // the requested permits, and the limit in force
}

func (e *AboveLimitError) Error() string {
	return fmt.Sprintf("luagate: %s: %d permits are %v. Accepted: 1 to %d. Ask for fewer, or raise the limit with Resize", e.Name,
		e.Permits, ErrAboveLimit, e.Limit)
}

// Is makes it an ErrAboveLimit.
func (e *AboveLimitError) Is(target error) bool { return target == ErrAboveLimit }

// LimitMismatchError: the semaphore is Strict, and the limit in force is not the one that it declares.
type LimitMismatchError struct {
	Name            string // of the semaphore
	Declared, Limit int    // the declared limit, and the limit in force
}

func (e *LimitMismatchError) Error() string {
	return fmt.Sprintf("luagate: %s: the limit in force is %d, this caller declares %d. Declare %d, or change the limit with Resize",
		e.Name, e.Limit, e.Declared, e.Limit)
}

// Is makes it an ErrLimitMismatch.
func (e *LimitMismatchError) Is(target error) bool { return target == ErrLimitMismatch }

func invalid(what string, got any, accepted string) error {
	shown := fmt.Sprintf("%#v", got)
	if len(shown) > 100 {
		shown = strings.ToValidUTF8(shown[:100], "") + "..."
	}
	return fmt.Errorf("luagate: %w %s: got %s. Accepted: %s", ErrInvalid, what, shown, accepted)
}

// --- Errors of go-redis ---

// errNoReply is the cause of a call that ended because the server did not answer.
var errNoReply = errors.New("no reply in time")

// noReply returns the error of an attempt. The end of its own context is not the end of the caller's.
func noReply(err error) error {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errNoReply
	}
	return err
}

func unreachable(place string, cause error) error {
	cause = noReply(cause)
	return fmt.Errorf("luagate: %s: %w. Check that it runs and that the address is right: %w", place, ErrUnreachable, cause)
}

// answerOf returns the text of the server, or "" if the error is not a reply.
func answerOf(err error) string {
	var answer redis.Error
	if err != nil && errors.As(err, &answer) {
		return answer.Error()
	}
	return ""
}

//go:embed lua/errors.json
var errorsFile []byte

// errorRow says what an error of a server or a proxy means.
type errorRow struct{ Code, Contains, Is, Passes, Run string }

// errorRows are the rows of the file. The first one that fits counts; the last one fits all.
var errorRows = func() []errorRow {
	var file struct{ Errors []errorRow }
	if err := json.Unmarshal(errorsFile, &file); err != nil {
		panic(err) // the package was built from a damaged file
	}
	return file.Errors
}()

func (r errorRow) fits(answer string) bool {
	if r.Code == "" {
		return strings.Contains(answer, r.Contains) && (r.Is == "" || r.Is == answer)
	}
	words := strings.Split(answer, " ")
	if !strings.HasPrefix(answer, "ERR Error running script") {
		return words[0] == r.Code
	}
	// Redis 6 puts other words before the error of a command in a script.
	return slices.ContainsFunc(words, func(word string) bool { return strings.TrimPrefix(word, "-") == r.Code })
}

func rowOf(answer string) errorRow {
	return errorRows[slices.IndexFunc(errorRows, func(row errorRow) bool { return row.fits(answer) })]
}

// isPassing is whether the server, or a proxy, may run the same call later, and nobody has to do anything.
func isPassing(answer string) bool { return rowOf(answer).Passes == "yes" }

// mayHaveRun is whether the server may have run a call that ended with this error, or may run it later.
func mayHaveRun(err error) bool {
	answer := answerOf(err)
	return err != nil && (answer == "" || rowOf(answer).Run == "unknown")
}

func isReadOnly(answer string) bool {
	code := rowOf(answer).Code
	return code == "READONLY" || code == "REDIRECT"
}

// isRefused is whether no program listens at the address, or only one that this client does not trust.
func isRefused(err error) bool {
	var dial *net.OpError
	var name *net.DNSError
	return errors.As(err, &dial) && dial.Op == "dial" && !dial.Timeout() || errors.As(err, &name) && name.IsNotFound
}

var (
	// Before the login, a server accepts only short commands: the others are "unauthenticated".
	noLogin = regexp.MustCompile(`^(NOAUTH|WRONGPASS) |invalid password|unauthenticated`)
	refusal = regexp.MustCompile(`^NOPERM |ACL failure|can't run this command|can't access`)
	command = regexp.MustCompile(`'([a-z|]+)' command`)
)

// explained returns the error for a client that the server refuses, or for a server that cannot run the
// scripts; nil if the answer is another one.
func (g *Gate) explained(place, answer string, err error) error {
	if strings.Contains(answer, "'struct'") {
		return fmt.Errorf("luagate: %s: the Lua of this server has no library struct, as in miniredis. Use Redis 6.2 or Valkey, or later, "+
			"also in tests: %w", place, err)
	}
	if noLogin.MatchString(answer) {
		return fmt.Errorf("luagate: %s: %w. Correct the user name and the password: %w", place, ErrNoPermission, err)
	}
	if !refusal.MatchString(answer) {
		return nil
	}
	var add string
	switch named := command.FindStringSubmatch(answer); {
	case named != nil:
		add = "+" + named[1]
	case strings.Contains(answer, "channel"):
		add = "&" + g.prefix + ":inbox:*"
	case strings.Contains(answer, "key"):
		add = "~" + g.prefix + ":*"
	default:
		add = "..., with the commands that the README of this package lists"
	}
	return fmt.Errorf("luagate: %s: %w. Run: ACL SETUSER <user> %s: %w", place, ErrNoPermission, add, err)
}
