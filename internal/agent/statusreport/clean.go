package statusreport

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Limits of the API for what a medium reports about itself, in bytes; signers are counted.
const (
	maxPath    = 256
	maxName    = 253
	maxVersion = 128
	maxSigners = 16
)

// Clean replaces characters that the API refuses: those that control a terminal or turn the
// direction of text. A path, a bundle's name or the output of a failed program may have
// some, and the API server would refuse the whole status because of them.
func Clean(s *v1alpha1.NodeUpdateStatus) {
	for i := range s.Media {
		m := &s.Media[i]
		m.Device, m.Name, m.Version = text.Prefix(m.Device, maxPath), text.Prefix(m.Name, maxName), text.Prefix(m.Version, maxVersion)
		m.SignedBy = m.SignedBy[:min(len(m.SignedBy), maxSigners)]
	}
	cleanValue(reflect.ValueOf(s).Elem())
}

// cleanValue walks the parts of a status. It copies what the status shares with the agent's
// state before it changes it.
func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(cleanText(v.String()))
	case reflect.Struct:
		cleanFields(v)
	case reflect.Slice:
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	default:
	}
}

func cleanFields(v reflect.Value) {
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() && v.Field(i).CanSet() {
			cleanValue(v.Field(i))
		}
	}
}

func cleanText(s string) string {
	if !strings.ContainsFunc(s, isForbidden) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if isForbidden(r) {
			return '?'
		}
		return r
	}, s)
}

func isForbidden(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}
