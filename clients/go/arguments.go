package luagate

import (
	"regexp"
	"strings"
	"time"
	"unicode"
)

// The bounds of the scripts.
const (
	most             = 1<<31 - 1 // permits, limit and waiters
	longestLease     = 3155760000000 * time.Millisecond
	longestHeadStart = 24 * time.Hour
	longestLabel     = 163 // bytes; an id has at most 200
)

var (
	groupedName = regexp.MustCompile(`^\{[^{}]+\}:[^{}]+$`) // a name with a group, which is its hash tag
	validPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
)

func (s *settings) check() error {
	switch {
	case !validPrefix.MatchString(s.prefix):
		return invalid("prefix", s.prefix, "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'")
	case s.callTimeout < time.Millisecond || s.callTimeout > time.Hour:
		return invalid("call timeout", s.callTimeout.String(), "1 ms to 1 hour")
	case s.logger == nil:
		return invalid("logger", s.logger, "a *slog.Logger")
	}
	return checkLabel(s.label)
}

func checkName(name string, limit int) error {
	switch {
	case !isWord(name, 200):
		return invalid("name", name, "1 to 200 bytes without white space and control characters")
	case strings.ContainsAny(name, "{}") && !groupedName.MatchString(name):
		return invalid("name", name, "braces only around a group, as in {group}:name")
	}
	return checkCount("limit", limit, 1)
}

func (s *Semaphore) check() error {
	if s.err != nil {
		return s.err
	}
	if s.Lease != Permanent {
		if err := checkDuration("Lease", s.Lease, longestLease); err != nil {
			return err
		}
	}
	if err := checkDuration("AtLeast", s.AtLeast, longestLease); err != nil {
		return err
	}
	if err := checkDuration("HeadStart", s.HeadStart, longestHeadStart); err != nil {
		return err
	}
	if err := checkCount("MaxWaiting", s.MaxWaiting, 0); err != nil {
		return err
	}
	return checkLabel(s.Label)
}

func checkCount(what string, n, least int) error {
	if n < least || n > most {
		return invalid(what, n, map[int]string{0: "0 to 2147483647", 1: "1 to 2147483647"}[least])
	}
	return nil
}

// checkDuration accepts 0, which stands for the default or for none.
func checkDuration(what string, d, longest time.Duration) error {
	if d != 0 && (d < time.Millisecond || d > longest) {
		return invalid(what, d.String(), "0, or 1 ms to "+longest.String())
	}
	return nil
}

func checkLabel(label string) error {
	if label != "" && !isWord(label, longestLabel) {
		return invalid("label", label, "up to 163 bytes without white space and control characters")
	}
	return nil
}

func isWord(text string, longest int) bool {
	space := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return len(text) >= 1 && len(text) <= longest && !strings.ContainsFunc(text, space)
}
