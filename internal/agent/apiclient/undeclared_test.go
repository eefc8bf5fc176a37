package apiclient

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

func TestUndeclaredMembersAreDropped(t *testing.T) {
	const object = `{"status":{"agent":{"formats":["a"],"version":"1"},"media":[{"device":"a","new":1},{"device":"b","new":2}],"phase":"Ready"}}`
	for name, x := range map[string]struct {
		answer  error
		left    string
		dropped []string
	}{
		"no error":      {nil, object, nil},
		"another error": {errors.New("connection refused"), object, nil},
		"one of an object": {errors.New("failed to create typed patch object (refit-nodes/n1): .status.agent.formats: field not declared in schema"),
			`{"status":{"agent":{"version":"1"},"media":[{"device":"a","new":1},{"device":"b","new":2}],"phase":"Ready"}}`, []string{"status.agent.formats"}},
		"several, in elements of a list": {errors.New("errors:\n  .status.media[0].new: field not declared in schema\n  .status.media[1].new: field not declared in schema\n  .status.phase: field not declared in schema"),
			`{"status":{"agent":{"formats":["a"],"version":"1"},"media":[{"device":"a"},{"device":"b"}]}}`, []string{"status.media.new", "status.phase"}},
		"what is not there":    {errors.New(".status.gone.x: field not declared in schema"), object, nil},
		"nothing but statuses": {errors.New(".metadata.name: field not declared in schema"), object, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var v map[string]any
			if err := json.Unmarshal([]byte(object), &v); err != nil {
				t.Fatal(err)
			}
			dropped := dropUndeclared(v, x.answer)
			left, err := json.Marshal(v)
			if err != nil || string(left) != x.left || !slices.Equal(dropped, x.dropped) {
				t.Errorf("dropped %v, left %s (%v)", dropped, left, err)
			}
		})
	}
}
