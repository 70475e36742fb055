package luagate

import (
	"log/slog"
	"sync"
)

// log passes warnings to the logger of the program in a goroutine of its own, in order: a handler may take
// long, or use a permit.
type log struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below
	lines   []line     // not passed yet
	written chan struct{}
}

type line struct {
	text string
	args []any
}

// warn returns at once.
func (l *log) warn(text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{text, args})
	if l.written == nil {
		l.written = make(chan struct{})
		go l.write()
	}
}

func (l *log) write() {
	for {
		l.mu.Lock()
		if len(l.lines) == 0 {
			close(l.written)
			l.written = nil
			l.mu.Unlock()
			return
		}
		next := l.lines[0]
		l.lines = l.lines[1:]
		l.mu.Unlock()
		l.logger.Warn(next.text, next.args...)
	}
}

// flush waits until all warnings are written.
func (l *log) flush() {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written != nil {
		<-written
	}
}
