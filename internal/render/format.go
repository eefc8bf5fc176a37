package render

import (
	"encoding/json"
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
