package luagate

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// page is the number of holders and waiters that one call of the script inspect returns.
const page = 1000

// State is a semaphore at one time. Holders and waiters of a long line come from several calls.
type State struct {
	Limit       int  // in force; 0: none is stored
	Pinned      bool // Resize stored the limit
	InUse       int  // permits
	WaiterCount int
	Holders     []Holder
	Waiters     []Waiter // in the order of the line
}

// Holder is one permit that is in use.
type Holder struct {
	ID, Label   string
	Permits     int
	Fence       int64
	Remaining   time.Duration // of its lease; Permanent: it has no end
	CoolingDown bool          // released before its minimum hold ended
}

// Waiter is a caller in line.
type Waiter struct {
	ID, Label string
	Permits   int
	Ticket    Ticket
}

// Inspect returns the holders and the waiters. It ends with ctx, and within the call timeout of the gate.
func (s *Semaphore) Inspect(ctx context.Context) (*State, error) {
	b, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var state State
	for offset := int64(0); ; offset += page {
		last, err := s.gate.call(b, s, new(tries), "inspect", offset, page)
		if err != nil {
			return nil, err
		}
		state.Limit, state.Pinned = int(last.n("limit")), last.n("pinned") == 1
		state.InUse, state.WaiterCount = int(last.n("in_use")), int(last.n("waiter_count"))
		holders := last.rows("holders")
		for i := range holders {
			id, row := idOf(holders, i), numbers(holders, i) // id permits fence expires_at cooling_down
			left := Permanent
			if row[3] != -1 {
				left = max(0, millis(row[3]-last.n("now")))
			}
			state.Holders = append(state.Holders, Holder{id, labelOf(id), int(row[1]), row[2], left, row[4] == 1})
		}
		waiters := last.rows("waiters")
		for i := range waiters {
			id, row := idOf(waiters, i), numbers(waiters, i) // id permits ticket patience_until
			state.Waiters = append(state.Waiters, Waiter{id, labelOf(id), int(row[1]), Ticket{row[2]}})
		}
		isEmpty := len(holders)+len(waiters) == 0
		if isEmpty || offset+page >= max(last.n("holder_count"), last.n("waiter_count")) {
			return &state, nil
		}
	}
}

// Revoke releases what the id holds, or removes it from the line. It reports whether it held or waited. The
// holder notices at its next refresh; the waiter gets ErrRevoked. It ends with ctx, and within the call
// timeout of the gate.
func (s *Semaphore) Revoke(ctx context.Context, id string) (bool, error) {
	b, done, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if !isWord(id, 200) {
		return false, invalid("id", id, "1 to 200 bytes without white space and control characters")
	}
	last, err := s.gate.call(b, s, new(tries), "release", id, 0)
	return last.word == "released" || last.word == "cancelled", err
}

// Resized is the result of Resize.
type Resized struct {
	Old, New int // the limits in force
	InUse    int // permits; they may be more than the new limit
}

// Resize changes the limit for all clients: 1 to 2147483647. A lower limit takes no permit away. It ends with
// ctx, and within the call timeout of the gate.
func (s *Semaphore) Resize(ctx context.Context, limit int) (*Resized, error) {
	b, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := checkCount("limit", limit, 1); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(s.key(), s.gate.prefix+":semaphore:") {
		return nil, fmt.Errorf("luagate: Resize: %w: got the lock %s. Accepted: a semaphore", ErrInvalid, s.key())
	}
	run := s.gate.scriptCall(s, "resize", limit, -1)
	run.fits = func(last reply) bool { return last.word == "resized" }
	last, err := s.gate.repeat(b, s.key(), new(tries), run)
	if err != nil {
		return nil, err
	}
	return &Resized{int(last.n("old")), int(last.n("new")), int(last.n("in_use"))}, nil
}

// begin checks the semaphore, and returns the bound of one call.
func (s *Semaphore) begin(ctx context.Context) (bound, func(), error) {
	if ctx == nil {
		return bound{}, nil, invalid("context", nil, "a context, as context.Background()")
	}
	if err := s.check(); err != nil {
		return bound{}, nil, err
	}
	b, done := s.gate.begin(ctx, s.gate.callTimeout)
	return b, done, nil
}

// numbers returns the numbers of a row of a reply; 0 for a text, and for those that are missing.
func numbers(rows []any, i int) (row [5]int64) {
	if i < len(rows) {
		values, _ := rows[i].([]any)
		for j := range min(len(values), len(row)) {
			row[j], _ = values[j].(int64)
		}
	}
	return row
}

func idOf(rows []any, i int) string {
	if row, _ := rows[i].([]any); len(row) > 0 {
		id, _ := row[0].(string)
		return id
	}
	return ""
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// labelOf returns the label of an id that has one.
func labelOf(id string) string {
	if at := strings.LastIndexByte(id, '/'); at >= 0 && uuid.MatchString(id[at+1:]) {
		return id[:at]
	}
	return ""
}
