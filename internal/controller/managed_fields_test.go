package controller

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// filtered reads a text through the filter, in pieces of any size.
func filtered(t testing.TB, text string, pieces func(io.Reader) io.Reader) string {
	t.Helper()
	out, err := io.ReadAll(newManagedFieldsFilter(pieces(strings.NewReader(text))))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestManagedFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	whole := func(r io.Reader) io.Reader { return r }
	for name, tc := range map[string]struct{ text, want string }{
		"of an item":               {`{"items":[{"metadata":{"name":"a","managedFields":[{"f":{"k:{\"]\"}":{}}}],"uid":"1"}}]}`, `{"items":[{"metadata":{"name":"a","managedFields":[],"uid":"1"}}]}`},
		"of each item":             {`{"items":[{"metadata":{"managedFields":[1]}},{"spec":{}, "metadata" : { "managedFields" : [ 2 ] }}]}`, `{"items":[{"metadata":{"managedFields":[]}},{"spec":{}, "metadata" : { "managedFields" : [] }}]}`},
		"a value with their name":  {`{"items":[{"metadata":{"a":"managedFields","b":[1]}}]}`, ""},
		"in a spec":                {`{"items":[{"spec":{"managedFields":[1]}}]}`, ""},
		"in labels":                {`{"items":[{"metadata":{"labels":{"managedFields":"1"},"a":[1]}}]}`, ""},
		"the metadata of the list": {`{"metadata":{"managedFields":[1]},"items":[]}`, ""},
		"a longer name":            {`{"items":[{"metadata":{"managedFieldsX":[1],"managedFields\n":[2]}}]}`, ""},
		"in arrays":                {`[["metadata",{"managedFields":[1]}],{"a":["managedFields",[1]]}]`, ""},
		"no list":                  {`{"items":[{"metadata":{"managedFields":null}}]}`, ""},
		"no JSON":                  {`]]}"\`, ""},
	} {
		if tc.want == "" {
			tc.want = tc.text
		}
		for _, pieces := range []func(io.Reader) io.Reader{whole, iotest.OneByteReader, iotest.DataErrReader} {
			if diff := cmp.Diff(tc.want, filtered(t, tc.text, pieces)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// What a text decodes to without the managed fields of its items is what it decodes to
// through the filter, and what cannot be decoded is not made readable.
func FuzzManagedFieldsFilter(f *testing.F) {
	for _, seed := range []string{
		`{"items":[{"metadata":{"name":"a","managedFields":[{"f":{"k:{\"]\"}":{}}}]}}],"metadata":{"resourceVersion":"1"}}`,
		`{"items":[{"metadata":{"managedFields":{"a":[]}},"spec":{"metadata":{"managedFields":[1]}}}]}`, `{"items":[[{"metadata":"}"}]]}`, `[]`, `{"items":[{"metadata":{"managedFields":[`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out := filtered(t, text, iotest.HalfReader)
		if again := filtered(t, text, iotest.OneByteReader); again != out {
			t.Fatalf("in other pieces %q, not %q", again, out)
		}
		var before, after any
		if json.Unmarshal([]byte(text), &before) != nil {
			return // as is most of what a fuzzer writes
		}
		if err := json.Unmarshal([]byte(out), &after); err != nil {
			t.Fatalf("%q became %q: %v", text, out, err)
		}
		if diff := cmp.Diff(emptied(before), emptied(after)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// emptied empties the managed fields of what a list decodes to, without regard to names.
func emptied(list any) any {
	for _, items := range elements(list) {
		for _, item := range elements(items) {
			fields, _ := item.(map[string]any)
			metadata, _ := fields[metadataKey].(map[string]any)
			switch metadata[managedFieldsKey].(type) {
			case []any:
				metadata[managedFieldsKey] = []any{}
			case map[string]any:
				metadata[managedFieldsKey] = map[string]any{}
			}
		}
	}
	return list
}

func elements(of any) []any {
	if fields, ok := of.(map[string]any); ok {
		return slices.Collect(maps.Values(fields))
	}
	list, _ := of.([]any)
	return list
}

// An answer that ends within managed fields is cut off, not whole.
func TestACutWithinManagedFieldsIsACut(t *testing.T) {
	t.Parallel()
	text := []byte(`{"items":[{"metadata":{"managedFields":[{"a":1}]}}],"metadata":{"resourceVersion":"1"}}`)
	cut := bytes.Index(text, []byte(`1}]`))
	if l, err := kind().read(bytes.NewReader(text[:cut])); err == nil {
		t.Errorf("a list of %d objects", len(l.Items))
	}
	if l, err := kind().read(bytes.NewReader(text)); err != nil || len(l.Items) != 1 {
		t.Errorf("%v, %v", l, err)
	}
}
