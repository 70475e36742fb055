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

// appendCommand adds a command in the protocol of the server. A word is a text or an integer.
func appendCommand(out []byte, words []any) []byte {
	out = appendLength(out, len(words))
	for _, word := range words {
		out = appendWord(out, word)
	}
	return out
}

func appendLength(out []byte, words int) []byte {
	out = strconv.AppendInt(append(out, '*'), int64(words), 10)
	return append(out, "\r\n"...)
}

func appendWord(out []byte, word any) []byte {
	switch word := word.(type) {
	case string:
		return appendText(out, word)
	case int64:
		return appendNumber(out, word)
	}
	return appendNumber(out, int64(word.(int)))
}

func appendText(out []byte, text string) []byte {
	out = strconv.AppendInt(append(out, '$'), int64(len(text)), 10)
	out = append(out, "\r\n"...)
	return append(append(out, text...), "\r\n"...)
}

func appendNumber(out []byte, number int64) []byte {
	var digits [20]byte
	return appendText(out, string(strconv.AppendInt(digits[:0], number, 10)))
}

const (
	longestText = 512 << 20 // of the protocol
	deepest     = 8         // levels of lists; the scripts return two
)

// readReply reads a reply: a string, an int64, a list, nil or a serverError. Messages that nobody asked for
// are skipped.
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
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return string(text), nil
	case '-':
		return serverError(text), nil
	case '_':
		return nil, nil
	}
	number, err := strconv.ParseInt(string(text), 10, 64)
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
		list := make([]any, 0, min(number, 16)) // it grows only with what arrives
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
		return list, nil
	}
	return nil, fmt.Errorf("%w: %.100q", ErrUnexpectedReply, line)
}

func readText(r *bufio.Reader, length int) (any, error) {
	if length == -1 {
		return nil, nil
	}
	if length+2 <= r.Size() {
		text, err := r.Peek(length + 2)
		if err != nil {
			return nil, err
		}
		word := string(text[:length])
		_, err = r.Discard(length + 2)
		return word, err
	}
	text := make([]byte, length+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return string(text[:length]), nil
}
