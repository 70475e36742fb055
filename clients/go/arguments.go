package luagate

import (
	"crypto/sha1"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of the scripts.
const (
	most             = 1<<31 - 1 // permits, limit and waiters
	longestLease     = 3155760000000 * time.Millisecond
	longestHeadStart = 24 * time.Hour
	longestWord      = 200 // bytes
	longestLabel     = 163 // bytes; the label is a part of an id
	longestGroup     = 100 // bytes, in a name that NameFrom makes
)

const orNameFrom = ". NameFrom makes a valid name of any text"

var (
	groupedName = regexp.MustCompile(`^\{[^{}]+\}:[^{}]+$`) // a name with a group, which is its hash tag
	groupStart  = regexp.MustCompile(`^\{([^{}]+)\}:`)      // of a text that begins with a group
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
	case !isWord(name, longestWord):
		return invalid("name", name, "1 to 200 bytes without white space and control characters"+orNameFrom)
	case !hasValidBraces(name):
		return invalid("name", name, "braces only around a group, as in {group}:name"+orNameFrom)
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
	return len(text) >= 1 && len(text) <= longest && !strings.ContainsFunc(text, isSpace)
}

func isSpace(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func hasValidBraces(name string) bool {
	return !strings.ContainsAny(name, "{}") || groupedName.MatchString(name)
}

// NameFrom makes a valid name of any text: a URL, a path, a text of any length. The same text has the same
// name in all languages. A valid name is returned unchanged. In another text, braces become parentheses, and
// white space and control characters become _. The result is cut to 200 bytes, of which the last are ~ and
// the SHA-1 of the text. A group, as in {group}:anything, stays if it is valid and has at most 100 bytes.
func NameFrom(text string) string {
	if isWord(text, longestWord) && hasValidBraces(text) {
		return text
	}
	name := ""
	if start := groupStart.FindStringSubmatch(text); start != nil && isWord(start[1], longestGroup) {
		name = start[0]
	}
	end := fmt.Sprintf("~%x", sha1.Sum([]byte(text)))
	for _, r := range text[len(name):] {
		switch {
		case r == '{':
			r = '('
		case r == '}':
			r = ')'
		case isSpace(r):
			r = '_'
		}
		if len(name)+utf8.RuneLen(r)+len(end) > longestWord {
			break
		}
		name += string(r)
	}
	return name + end
}
