package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// UnknownMembersError reports members of a Content that this version does not know and may
// not ignore.
type UnknownMembersError struct{ Members []string }

func (e *UnknownMembersError) Error() string {
	return fmt.Sprintf("unknown members %s", strings.Join(e.Members, ", "))
}

// DecodeContent decodes a hold list or trust list. The writer may be newer: it names in the
// member "optional" what an older reader may ignore. Any other member that this version does
// not know is an UnknownMembersError, and nothing is decoded.
func DecodeContent(text string, into any) error {
	var all any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	var named struct {
		Optional []string `json:"optional"`
	}
	if err := json.Unmarshal([]byte(text), &named); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	unknown := unknownMembers(all, reflect.TypeOf(into).Elem(), "")
	unknown = slices.DeleteFunc(unknown, func(m string) bool { return slices.Contains(named.Optional, m) })
	if len(unknown) > 0 {
		return &UnknownMembersError{unknown}
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// unknownMembers returns the paths of members that a type does not have, each once: of the
// element of a list it is the list's path, for example images.priority.
func unknownMembers(v any, t reflect.Type, path string) (out []string) {
	switch v := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for _, x := range v {
				out = append(out, unknownMembers(x, t.Elem(), path)...)
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			if member, ok := memberOf(t, name); ok {
				out = append(out, unknownMembers(v[name], member, at)...)
			} else {
				out = append(out, at)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// memberOf returns the type of a JSON member of a struct, whose name must match exactly, or
// of a map. Another type has no members: decoding reports the mismatch.
func memberOf(t reflect.Type, name string) (reflect.Type, bool) {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem(), true
	case reflect.Struct:
		for i := range t.NumField() {
			if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
				return t.Field(i).Type, true
			}
		}
		return nil, false
	}
	return t, true
}
