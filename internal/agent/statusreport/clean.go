package statusreport

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Most bytes of what a medium says of itself; the API takes no more.
const (
	mostPath    = 256
	mostName    = 253
	mostVersion = 128
	mostSigners = 16
)

// Clean replaces what the API refuses: characters that control a terminal or turn the
// direction of text. A path, a bundle's name or the words of a failed program may have
// some, and the whole status would be refused for them.
func Clean(s *v1alpha1.NodeUpdateStatus) {
	for i := range s.Media {
		m := &s.Media[i]
		m.Device, m.Name, m.Version = text.Prefix(m.Device, mostPath), text.Prefix(m.Name, mostName), text.Prefix(m.Version, mostVersion)
		m.SignedBy = m.SignedBy[:min(len(m.SignedBy), mostSigners)]
	}
	clean(reflect.ValueOf(s).Elem())
}

// clean walks what a status is made of; what it shares with the agent's state is copied
// before it is changed.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(cleanText(v.String()))
	case reflect.Struct:
		cleanFields(v)
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	default:
	}
}

func cleanFields(v reflect.Value) {
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() && v.Field(i).CanSet() {
			clean(v.Field(i))
		}
	}
}

func cleanText(s string) string {
	if !strings.ContainsFunc(s, forbidden) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if forbidden(r) {
			return '?'
		}
		return r
	}, s)
}

func forbidden(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}
