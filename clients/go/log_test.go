package luagate

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// handler is a log handler of a program.
type handler func()

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(context.Context, slog.Record) error {
	h()
	return nil
}

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h handler) WithGroup(string) slog.Handler { return h }

// A log handler may ask the permit of which a warning is.
func TestLogHandlerAsksThePermit(t *testing.T) {
	for name, test := range map[string]struct {
		end       time.Duration // from now
		reply     any
		isRenewed bool
		run       func(*Permit)
	}{
		"lease ends":      {50 * time.Millisecond, nil, false, func(p *Permit) { p.Lost() }},
		"refused refresh": {time.Hour, []any{"lost", serverTime}, false, func(p *Permit) { p.Refresh(context.Background()) }},
		"failed renewal":  {time.Second, errors.New("ERR no"), true, func(*Permit) {}},
	} {
		t.Run(name, func(t *testing.T) {
			permits, asked := make(chan *Permit, 9), make(chan bool, 9)
			gate, err := New(forged(func() any { return test.reply }), WithLogger(slog.New(handler(func() {
				permit := <-permits
				permits <- permit
				asked <- permit.IsLost()
			}))))
			if err != nil {
				t.Fatal(err)
			}
			s := gate.Semaphore("line", 1)
			s.Lease, s.AutoRenew = time.Hour, test.isRenewed
			permit := newPermit(s, Permit{ID: "id", Permits: 1}, serverTime, clock()+test.end)
			permits <- permit
			go test.run(permit)
			select {
			case <-asked:
				gate.Close()
			case <-time.After(5 * time.Second):
				t.Error("the handler got no answer")
			}
		})
	}
}

// A log handler that takes long holds no call up.
func TestSlowLogHandler(t *testing.T) {
	server, logged, ends := &memory{}, make(chan struct{}), make(chan struct{})
	gate := server.open(t, WithLogger(slog.New(handler(func() {
		close(logged)
		<-ends
	}))))
	server.fault = func(call call) any {
		if call.script == "release" {
			return []any{"gone", 0, 0, 1} // the permit was lost
		}
		return nil
	}
	if err := gate.Semaphore("line", 1).Do(t.Context(), 1, nothing); err != nil {
		t.Fatal(err)
	}
	<-logged
	_, err := gate.Semaphore("other", 1).TryAcquire(t.Context(), 1)
	if replaced := gate.Counters().Reconnects; err != nil || replaced > 0 { // a silent connection is replaced
		t.Errorf("%d connections were replaced, %v", replaced, err)
	}
	close(ends)
}
