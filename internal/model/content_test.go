package model

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnUnknownMemberIsRefusedUnlessItsWriterCallsItOptional(t *testing.T) {
	const image = `{"name":"a:1","digest":"sha256:1","bundle":""`
	for name, x := range map[string]struct {
		text    string
		into    any
		unknown []string
		failed  bool
	}{
		"all known":                      {text: `{"images":[` + image + `}]}`, into: &PinSet{}},
		"a new member":                   {text: `{"images":[],"quota":1}`, into: &PinSet{}, unknown: []string{"quota"}},
		"a new member of an image":       {text: `{"images":[` + image + `,"priority":1},` + image + `,"priority":2}]}`, into: &PinSet{}, unknown: []string{"images.priority"}},
		"an optional one":                {text: `{"images":[` + image + `,"priority":1}],"optional":["images.priority"]}`, into: &PinSet{}},
		"optional is the path, not less": {text: `{"images":[` + image + `,"priority":1}],"priority":1,"optional":["priority"]}`, into: &PinSet{}, unknown: []string{"images.priority"}},
		"one optional, one not":          {text: `{"policies":[],"a":1,"b":2,"optional":["a"]}`, into: &Trust{}, unknown: []string{"b"}},
		"a new member of a policy":       {text: `{"policies":[{"name":"p","keys":{"k":"PEM"},"threshold":1,"expires":"2027"}]}`, into: &Trust{}, unknown: []string{"policies.expires"}},
		"other case is another member":   {text: `{"images":[],"Images":[` + image + `}]}`, into: &PinSet{}, unknown: []string{"Images"}},
		"torn":                           {text: `{"images":[`, into: &PinSet{}, failed: true},
		"another type":                   {text: `{"images":{"a":1}}`, into: &PinSet{}, failed: true},
		"optional of another type":       {text: `{"images":[],"a":1,"optional":"a"}`, into: &PinSet{}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := reflect.New(reflect.TypeOf(x.into).Elem()).Interface()
			err := DecodeContent(x.text, x.into)
			var unknown *UnknownMembersError
			if errors.As(err, &unknown) != (x.unknown != nil) || (err != nil) != (x.failed || x.unknown != nil) {
				t.Fatalf("got %v", err)
			}
			if x.unknown != nil && (!slices.Equal(unknown.Members, x.unknown) || !strings.Contains(err.Error(), x.unknown[0])) {
				t.Errorf("got %v, want %v", err, x.unknown)
			}
			if x.unknown != nil && !reflect.DeepEqual(before, x.into) {
				t.Errorf("it was decoded: %+v", x.into)
			}
		})
	}
}

// formats are the members of each format as agents of released versions know them. A new
// member fails here: either the controller names it in "optional", or it is of a new format
// that the controller writes only for nodes whose agents report it.
var formats = map[string]struct {
	of      any
	members []string
}{
	PinSetVersion: {PinSet{}, []string{"images", "images.base", "images.bundle", "images.digest", "images.kubelet", "images.made", "images.name", "images.noCopy",
		"images.registry", "images.size", "optional", "payloads", "payloads.bundle", "payloads.digest", "payloads.name"}},
	"refit.dev/trust/v1": {Trust{}, []string{"optional", "policies", "policies.keys", "policies.name", "policies.threshold", "requireSignatures", "revokedDigests"}},
}

func TestTheMembersOfAFormatAreFixed(t *testing.T) {
	for name, f := range formats {
		got := members(reflect.TypeOf(f.of), "")
		slices.Sort(got)
		if d := cmp.Diff(f.members, got); d != "" {
			t.Errorf("format %s has other members than agents know (docs/design/2026-11-22-trust-on-nodes.md, Skew):\n%s", name, d)
		}
	}
}

func members(t reflect.Type, path string) (out []string) {
	switch t.Kind() {
	case reflect.Slice:
		return members(t.Elem(), path)
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			out = append(append(out, at), members(t.Field(i).Type, at)...)
		}
	}
	return out
}
