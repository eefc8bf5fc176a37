package service

import (
	"context"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// word matches content of a field's file that may appear in the status. Other content appears
// as anotherValue.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}$`)

const anotherValue = "another"

// externalFields returns the fields that external updaters change, read from their files. A
// missing file has no value.
func externalFields(_ context.Context, c *model.NodeConfig) map[string]string {
	out := map[string]string{}
	for _, f := range c.External {
		if model.UnreadablePath(f.File) != "" {
			continue
		}
		if v := valueIn(f.File); v != "" {
			out[f.Path] = v
		}
	}
	return out
}

func valueIn(path string) string {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() { // reading a pipe would block
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 256))
	text := strings.TrimSpace(string(b))
	switch {
	case err != nil || text == "":
		return ""
	case !word.MatchString(text):
		return anotherValue
	}
	return text
}
