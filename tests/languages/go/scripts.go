package luagate

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// contract is the version of lua/README.md that this package implements.
const contract = 1

// Script is a script of the manifest.
type Script struct {
	Keys, Argv       []string
	Optional         int // the number of last arguments that may be left out
	Replies          map[string][]string
	File, SHA1, text string
}

// reply contains the numbers of a reply by their names in the manifest.
type reply map[string]int64

// Load reads the manifest in the folder lua/ and the scripts that it lists.
func Load(folder string) (map[string]*Script, error) {
	text, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err != nil {
		return nil, err
	}
	var manifest struct {
		Contract int
		Scripts  map[string]*Script
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	if manifest.Contract != contract {
		return nil, fmt.Errorf("luagate: %s: got contract %d. Accepted: contract %d. Use the folder lua/ that belongs to this "+
			"package", folder, manifest.Contract, contract)
	}
	for name, script := range manifest.Scripts {
		text, err := os.ReadFile(filepath.Join(folder, script.File))
		if err != nil {
			return nil, err
		}
		if script.text = string(text); fmt.Sprintf("%x", sha1.Sum(text)) != script.SHA1 {
			return nil, fmt.Errorf("luagate: %s: the SHA-1 of %s differs from the manifest. Copy the folder lua/ again, byte for "+
				"byte", name, script.File)
		}
	}
	return manifest.Scripts, nil
}

// Run runs the script, and loads it if the server does not have it.
func (s *Script) Run(ctx context.Context, rdb *redis.Client, keys []string, args ...any) *redis.Cmd {
	cmd := rdb.EvalSha(ctx, s.SHA1, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.ScriptLoad(ctx, s.text)
			cmd = pipe.EvalSha(ctx, s.SHA1, keys, args...)
			return nil
		})
	}
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") { // another client's SCRIPT FLUSH ran in between
		cmd = rdb.Eval(ctx, s.text, keys, args...)
	}
	return cmd
}

// call runs a script of the semaphore with arguments by name. It returns the word and the numbers of the reply.
func (s *Semaphore) call(ctx context.Context, name string, arguments map[string]any) (string, reply, error) {
	script := s.client.scripts["semaphore/"+name]
	var args []any
	for i, name := range script.Argv {
		if value, given := arguments[name]; given || i < len(script.Argv)-script.Optional {
			args = append(args, value)
		}
	}
	word, fields, err := script.ask(ctx, s.client.rdb, s.keys, args)
	numbers := reply{}
	for name, value := range fields {
		numbers[name] = value.(int64)
	}
	return word, numbers, err
}

// ask runs a script. It returns the word of the reply, and its fields by their names in the manifest.
func (s *Script) ask(ctx context.Context, rdb *redis.Client, keys []string, args []any) (string, map[string]any, error) {
	values, err := s.Run(ctx, rdb, keys, args...).Slice()
	if err != nil {
		return "", nil, err
	}
	word, fields := values[0].(string), map[string]any{}
	for i, name := range s.Replies[word] {
		fields[name] = values[i+1]
	}
	return word, fields, nil
}
