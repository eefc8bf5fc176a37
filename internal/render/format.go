package render

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Formats that -o takes.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
)

// Known reports whether a format is one of the four.
func Known(format string) bool {
	switch format {
	case Table, Wide, JSON, YAML:
		return true
	}
	return false
}

// Value writes v as JSON or YAML.
func Value(w io.Writer, format string, v any) error {
	if format == YAML {
		b, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Bytes is a size for people: 1.5 GiB.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), -1
	for f >= unit && i < 4 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

// Short is a digest for people: its algorithm and first twelve digits.
func Short(digest string) string {
	if len(digest) > 19 {
		return digest[:19]
	}
	return digest
}
