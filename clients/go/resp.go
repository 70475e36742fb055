package luagate

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// serverError is an error that the server answered, with the interface of those of go-redis.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (e serverError) RedisError() {}

// appendCommand adds a command in the protocol of the server. A word is a string or an integer.
func appendCommand(out []byte, words []any) []byte {
	out = append(out, '*')
	out = strconv.AppendInt(out, int64(len(words)), 10)
	for _, word := range words {
		text, isText := word.(string)
		if !isText {
			text = fmt.Sprint(word)
		}
		out = append(out, "\r\n$"...)
		out = strconv.AppendInt(out, int64(len(text)), 10)
		out = append(out, "\r\n"...)
		out = append(out, text...)
	}
	return append(out, "\r\n"...)
}

const (
	longestText = 512 << 20 // of the protocol
	deepest     = 8         // levels of lists; the scripts return two
)

// readReply reads a reply: a string, an int64, a list, nil or a serverError. Messages that nobody asked for are skipped.
func readReply(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if err == bufio.ErrBufferFull {
			err = ErrUnexpectedReply
		}
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > deepest {
		return nil, fmt.Errorf("%w: %.100q", ErrUnexpectedReply, line)
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return text, nil
	case '-':
		return serverError(text), nil
	case '_':
		return nil, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || kind != ':' && (number < -1 || number > longestText):
		return nil, fmt.Errorf("%w: %.100q", ErrUnexpectedReply, line)
	case kind == ':':
		return number, nil
	case kind == '$':
		return readText(r, int(number))
	case kind == '*' || kind == '>':
		if number == -1 {
			return nil, nil
		}
		var list []any
		for range number {
			value, err := readReply(r, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		if kind == '>' {
			return readReply(r, depth)
		}
		if list == nil {
			list = []any{}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: %.100q", ErrUnexpectedReply, line)
}

func readText(r *bufio.Reader, length int) (any, error) {
	if length == -1 {
		return nil, nil
	}
	text := make([]byte, length+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return string(text[:length]), nil
}
