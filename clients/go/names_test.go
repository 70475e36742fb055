package luagate

import (
	"encoding/json"
	"os"
	"testing"
)

// The same text has the same name in all languages.
func TestNameFrom(t *testing.T) {
	file, err := os.ReadFile("../../lua/names.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Text, Name string }
	if err := json.Unmarshal(file, &rows); err != nil || len(rows) < 20 {
		t.Fatal(len(rows), err)
	}
	for _, row := range rows {
		if name := NameFrom(row.Text); name != row.Name || !isWord(name, longestWord) || !hasValidBraces(name) {
			t.Errorf("%q: got %q, not %q", row.Text, name, row.Name)
		}
	}
}
