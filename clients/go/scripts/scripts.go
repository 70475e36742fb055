// Package scripts loads and runs the scripts of luagate. The package luagate uses it; use it directly to call
// a script for which luagate has no method.
package scripts

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/redis/go-redis/v9"
)

// contract is the version of lua/README.md that this package implements.
const contract = 1

// ErrUnexpectedReply: the scripts never return this reply.
var ErrUnexpectedReply = errors.New("unexpected reply; the script never returns this. Check for a proxy that changes replies")

// rows are the fields that are lists, and the length of each row. All other fields are numbers.
var rows = map[string]map[string]int{
	"semaphore/inspect":             {"holders": 5, "waiters": 4},
	"semaphore/try_acquire_several": {"permits": 5, "usages": 3},
}

// Script is a script of the manifest.
type Script struct {
	Keys, Argv []string
	Optional   int                 // the number of last arguments that may be left out
	Replies    map[string][]string // the names of the fields, by the first word of a reply
	File, SHA1 string

	name, text string
}

// Load reads the manifest in a folder lua/ and the scripts that it lists, by their names.
func Load(folder fs.FS) (map[string]*Script, error) {
	text, err := fs.ReadFile(folder, "manifest.json")
	if err != nil {
		return nil, fmt.Errorf("luagate: the manifest of the scripts: %w", err)
	}
	var manifest struct {
		Contract int
		Scripts  map[string]*Script
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, fmt.Errorf("luagate: the manifest of the scripts: %w", err)
	}
	if manifest.Contract != contract {
		return nil, fmt.Errorf("luagate: the scripts: got contract %d. Accepted: contract %d. Use the folder lua/ that belongs to "+
			"this package", manifest.Contract, contract)
	}
	for name, script := range manifest.Scripts {
		text, err := fs.ReadFile(folder, script.File)
		if err != nil {
			return nil, fmt.Errorf("luagate: %s: %w", name, err)
		}
		if script.name, script.text = name, string(text); fmt.Sprintf("%x", sha1.Sum(text)) != script.SHA1 {
			return nil, fmt.Errorf("luagate: %s: the SHA-1 of %s differs from the manifest. Copy the folder lua/ again, byte for "+
				"byte", name, script.File)
		}
	}
	return manifest.Scripts, nil
}

// Run runs the script. If the server does not have it, the text is sent: the server stores it. There is no
// SCRIPT LOAD, because some proxies refuse it.
func (s *Script) Run(ctx context.Context, rdb redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	cmd := rdb.EvalSha(ctx, s.SHA1, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = rdb.Eval(ctx, s.text, keys, args...)
	}
	return cmd
}

// Command returns the command that runs the script, and its first argument. EVAL has the text, which the
// server stores.
func (s *Script) Command(withText bool) (command, script string) {
	if withText {
		return "EVAL", s.text
	}
	return "EVALSHA", s.SHA1
}

// Fields are the fields of a reply.
type Fields struct {
	names  []string
	values []any
}

// Get returns the field with this name: an int64, or a list of rows. nil: the reply has none.
func (f Fields) Get(name string) any {
	if i := slices.Index(f.names, name); i >= 0 {
		return f.values[i]
	}
	return nil
}

// Read returns the word of a reply, and its fields by their names in the manifest.
func (s *Script) Read(answer any) (string, Fields, error) {
	values, _ := answer.([]any)
	word := ""
	names, hasNoWord := s.Replies[""]
	if !hasNoWord && len(values) > 0 {
		word, _ = values[0].(string)
		names, values = s.Replies[word], values[1:]
	}
	if names == nil || len(values) < len(names) {
		return "", Fields{}, s.unexpected(answer)
	}
	for i, name := range names {
		length, isList := rows[s.name][name]
		if isList && !areRows(values[i], length, s.name == "semaphore/inspect") || !isList && !isNumber(values[i]) {
			return "", Fields{}, s.unexpected(answer)
		}
	}
	return word, Fields{names, values}, nil
}

func (s *Script) unexpected(answer any) error {
	return fmt.Errorf("%s: %w: %.200s", s.name, ErrUnexpectedReply, fmt.Sprint(answer))
}

func isNumber(value any) bool {
	number, isNumber := value.(int64)
	return isNumber && number >= -1 && number <= 1<<53 // the numbers of Lua: times, tickets and fences are lower
}

// areRows is whether it is a list of rows of numbers. With ids, each row begins with one.
func areRows(value any, length int, haveIDs bool) bool {
	list, isList := value.([]any)
	for _, one := range list {
		row, _ := one.([]any)
		if len(row) < length {
			return false
		}
		for i, cell := range row[:length] {
			if _, isText := cell.(string); haveIDs && i == 0 && !isText || (!haveIDs || i > 0) && !isNumber(cell) {
				return false
			}
		}
	}
	return isList
}
