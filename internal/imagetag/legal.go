package imagetag

import (
	"fmt"
	"strings"
)

// MaxLength of a tag in the OCI distribution specification, in bytes.
const MaxLength = 128

// Legal returns why the OCI distribution specification forbids a tag, nil if it does not. A tag
// is a letter, digit or underscore, then up to 127 letters, digits, underscores, dots and hyphens.
func Legal(text string) error {
	if text == "" {
		return fmt.Errorf("an empty tag is not legal: a tag has 1 to %d characters", MaxLength)
	}
	if len(text) > MaxLength {
		return fmt.Errorf("tag %.20s... is not legal: it has %d characters, the most is %d", text, len(text), MaxLength)
	}
	for i, r := range text {
		switch {
		case !legalRune(r):
			return fmt.Errorf("tag %q is not legal: character %q at %d; only letters, digits, underscore, dot and hyphen may occur", text, r, i)
		case i == 0 && (r == '.' || r == '-'):
			return fmt.Errorf("tag %q is not legal: it begins with %q; begin with a letter, a digit or an underscore", text, r)
		}
	}
	return nil
}

func legalRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-'
}

// Encode writes an application's version as it may stand in a tag. Characters
// that no tag may have are replaced as mapping says, each by legal text; one
// that mapping does not know is refused: dropping it would give two versions one
// tag. The mapping that people know is PlusAsUnderscore.
func Encode(app string, mapping map[string]string) (string, error) {
	var out strings.Builder
	for _, r := range app {
		if legalRune(r) {
			out.WriteRune(r)
			continue
		}
		to, ok := mapping[string(r)]
		if !ok {
			return "", fmt.Errorf("version %q cannot stand in a tag: %q is not allowed there, and no mapping for it is set (for + there is +=_)", app, r)
		}
		out.WriteString(to)
	}
	return out.String(), Legal(out.String())
}

// PlusAsUnderscore is the one mapping that is shipped: 1.2.3+4 becomes 1.2.3_4.
func PlusAsUnderscore() map[string]string { return map[string]string{"+": "_"} }
