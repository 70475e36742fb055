package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The patterns of a case: evaluates its texts, and compares replies and messages with them.

var (
	key      = regexp.MustCompile(`@(\w+)(:\w+)?`)
	word     = regexp.MustCompile(`^(<=?|>=?)?(.+?)(?:\.\.(.+))?$`)
	loneName = regexp.MustCompile(`^\$\w+$`)
	sum      = regexp.MustCompile(`^-?\$?\w+([-+]\$?\w+)*$`)
	term     = regexp.MustCompile(`([-+]?)(\$?\w+)`)
)

// text evaluates a key, an argument or an expected text.
func (r *run) text(value any) string {
	if bytes, ok := value.(map[string]any); ok {
		if digits, ok := bytes["hex"]; ok {
			return string(must(hex.DecodeString(digits.(string))))
		}
		return strings.Repeat(bytes["long"].(string), int(must(bytes["times"].(json.Number).Int64())))
	}
	text := value.(string)
	if number, ok := r.sum(text); ok && text[0] == '$' {
		return fmt.Sprint(number)
	}
	return key.ReplaceAllStringFunc(text, func(key string) string {
		kind, name, _ := strings.Cut(key[1:], ":")
		return r.prefix + ":" + kind + ":{x}:" + cmp.Or(name, "m")
	})
}

// compare binds the names in an expected reply or message, and then compares.
func (r *run) compare(expected, actual any) {
	r.bind(expected, actual)
	if !r.equal(expected, actual) {
		panic(fmt.Sprintf("got %s; bound names: %v", must(json.Marshal(actual)), r.names))
	}
}

func (r *run) bind(expected, actual any) {
	if list, ok := expected.([]any); ok {
		values, _ := actual.([]any)
		for i := range min(len(list), len(values)) {
			r.bind(list[i], values[i])
		}
	}
	number, isNumber := actual.(int64)
	pattern, _ := expected.(string)
	for _, word := range strings.Fields(pattern) {
		_, bound := r.names[word]
		switch {
		case bound || !isNumber || !loneName.MatchString(word):
		case word != "$now":
			r.names[word] = number
		case r.before <= number && number <= r.after:
			r.names["$now"], r.names["$us"] = number, number*1000
		}
	}
}

func (r *run) equal(expected, actual any) bool {
	switch expected := expected.(type) {
	case []any:
		values, ok := actual.([]any)
		return ok && slices.EqualFunc(expected, values, r.equal)
	case map[string]any:
		if length, ok := expected["length"]; ok {
			values, ok := actual.([]any)
			return ok && fmt.Sprint(len(values)) == fmt.Sprint(length)
		}
		return actual == r.text(expected)
	case string:
		if number, ok := actual.(int64); ok {
			return r.fits(expected, number, 0)
		}
		return expected == "*" || actual == r.text(expected)
	default:
		number, ok := actual.(int64)
		return ok && fmt.Sprint(number) == fmt.Sprint(expected)
	}
}

// fits reports whether a number fits every word of a pattern, with this tolerance.
func (r *run) fits(pattern string, number, slack int64) bool {
	for _, text := range strings.Fields(pattern) {
		if text == "*" {
			continue
		}
		parts := word.FindStringSubmatch(text)
		least, ok := r.sum(parts[2])
		most := least
		if ok && parts[3] != "" {
			most, ok = r.sum(parts[3])
		}
		fits := map[string]bool{
			"<":  number < most+slack,
			"<=": number <= most+slack,
			"":   number >= least-slack && number <= most+slack,
			">=": number >= least-slack,
			">":  number > least-slack,
		}
		if !ok || !fits[parts[1]] {
			return false
		}
	}
	return pattern != ""
}

// sum returns the sum of the numbers and bound names in a text.
func (r *run) sum(text string) (total int64, ok bool) {
	if !sum.MatchString(text) {
		return 0, false
	}
	for _, parts := range term.FindAllStringSubmatch(text, -1) {
		number, bound := r.names[parts[2]]
		if !bound {
			digits, err := strconv.ParseInt(parts[2], 10, 64)
			if err != nil {
				return 0, false
			}
			number = digits
		}
		if parts[1] == "-" {
			number = -number
		}
		total += number
	}
	return total, true
}
