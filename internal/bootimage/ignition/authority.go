package ignition

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strings"
)

// ReplaceAuthority puts another certificate authority (PEM) into a configuration
// of version 2 or 3. One with several authorities is refused: it is not known
// which is meant. Every other byte stays as it is; the result is the very same if
// nothing changes.
func ReplaceAuthority(data []byte, pem string) ([]byte, error) {
	if _, err := Version(data); err != nil {
		return nil, err
	}
	whole := span{0, len(data)}
	list, err := whole.at(data, "ignition", "security", "tls", "certificateAuthorities")
	if err != nil {
		return nil, errors.New("it has no certificate authority that could be replaced")
	}
	one, n, err := list.only(data)
	if err != nil {
		return nil, fmt.Errorf("its certificate authorities cannot be read: %w", err)
	}
	if n != 1 {
		return nil, fmt.Errorf("it has %d certificate authorities, so it is not known which one is meant", n)
	}
	members, err := one.members(data)
	if err != nil {
		return nil, errors.New("its certificate authority cannot be read")
	}
	return exchange(data, one, members, authority(pem))
}

// exchange the source of an authority. What belonged to the one before, its hash
// and its compression, goes with it.
func exchange(data []byte, object span, members []member, source string) ([]byte, error) {
	var had *member
	stale := false
	for i := range members {
		if members[i].name == "source" {
			had = &members[i]
		}
		stale = stale || members[i].stale(data)
	}
	if had == nil {
		return nil, errors.New("its certificate authority has no source")
	}
	var now string
	if json.Unmarshal(data[had.value.from:had.value.to], &now) == nil && now == source {
		return data, nil
	}
	quoted, err := json.Marshal(source)
	if err != nil {
		return nil, err
	}
	if stale {
		return splice(data, object, rebuilt(data, members, quoted)), nil
	}
	return splice(data, had.value, quoted), nil
}

// rebuilt is the object with another source and without what is stale.
func rebuilt(data []byte, members []member, source []byte) []byte {
	var kept []string
	for _, m := range members {
		switch {
		case m.stale(data):
		case m.name == "source":
			kept = append(kept, `"source":`+string(source))
		default:
			kept = append(kept, string(data[m.key.from:m.value.to]))
		}
	}
	return []byte("{" + strings.Join(kept, ",") + "}")
}

func splice(data []byte, s span, with []byte) []byte {
	return bytes.Join([][]byte{data[:s.from], with, data[s.to:]}, nil)
}

// span is a part of a text.
type span struct{ from, to int }

// member of an object: its name, and where name and value stand.
type member struct {
	name       string
	key, value span
}

// stale: it says something of the source that is exchanged.
func (m member) stale(data []byte) bool {
	raw := string(data[m.value.from:m.value.to])
	return m.name == "verification" && strings.Contains(raw, `"hash"`) || m.name == "compression" && raw != `""` && raw != "null"
}

// at follows names of objects. The last of equal names counts, as in Go.
func (s span) at(data []byte, names ...string) (span, error) {
	for _, n := range names {
		ms, err := s.members(data)
		if err != nil {
			return s, err
		}
		found := false
		for _, m := range ms {
			if m.name == n {
				s, found = m.value, true
			}
		}
		if !found {
			return s, fmt.Errorf("there is no %s", n)
		}
	}
	return s, nil
}

// members of the object that the span is.
func (s span) members(data []byte) ([]member, error) {
	dec, err := s.open(data, '{')
	if err != nil {
		return nil, err
	}
	var out []member
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if !ok {
			return nil, errors.New("a name is wanted")
		}
		end := s.from + int(dec.InputOffset())
		m := member{name: name, key: span{end - quotedLength(data[:end]), end}}
		if m.value, err = s.value(dec); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// quotedLength is how long the quoted text is that the data ends with.
func quotedLength(data []byte) int {
	for i := len(data) - 2; i >= 0; i-- {
		if data[i] != '"' {
			continue
		}
		back := 0
		for i-back-1 >= 0 && data[i-back-1] == '\\' {
			back++
		}
		if back%2 == 0 {
			return len(data) - i
		}
	}
	return len(data)
}

// only is the first value of the list that the span is, and how many there are.
func (s span) only(data []byte) (first span, n int, err error) {
	dec, err := s.open(data, '[')
	if err != nil {
		return first, 0, err
	}
	for ; dec.More(); n++ {
		v, err := s.value(dec)
		if err != nil {
			return first, n, err
		}
		if n == 0 {
			first = v
		}
	}
	return first, n, nil
}

func (s span) open(data []byte, with json.Delim) (*json.Decoder, error) {
	dec := json.NewDecoder(bytes.NewReader(data[s.from:s.to]))
	dec.UseNumber()
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if t != with {
		return nil, fmt.Errorf("%v is wanted", with)
	}
	return dec, nil
}

// value that comes next in a decoder of the span.
func (s span) value(dec *json.Decoder) (span, error) {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return span{}, err
	}
	end := s.from + int(dec.InputOffset())
	return span{end - len(raw), end}, nil
}

// Servers are the hosts that a configuration fetches the rest from, with their
// ports, in order.
func Servers(data []byte) ([]string, error) {
	if _, err := Version(data); err != nil {
		return nil, err
	}
	type source struct {
		Source string `json:"source"`
	}
	var c struct {
		Ignition struct {
			Config struct {
				Merge   []source `json:"merge"`
				Append  []source `json:"append"`
				Replace source   `json:"replace"`
			} `json:"config"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	var out []string
	for _, s := range append(append(c.Ignition.Config.Merge, c.Ignition.Config.Append...), c.Ignition.Config.Replace) {
		if u, err := url.Parse(s.Source); err == nil && u.Scheme == "https" && u.Host != "" {
			out = append(out, u.Host)
		}
	}
	sort.Strings(out)
	return out, nil
}

// Pointer is the configuration that a machine is started with: it says where the
// real one is fetched, and whose certificate that server has. There is no secret
// in it but the address.
func Pointer(address, pem string) ([]byte, error) {
	return json.Marshal(map[string]any{"ignition": map[string]any{"version": Target,
		"config":   map[string]any{"merge": []any{map[string]any{"source": address}}},
		"security": map[string]any{"tls": map[string]any{"certificateAuthorities": []any{map[string]any{"source": authority(pem)}}}}}})
}

func authority(pem string) string {
	return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(pem))
}

// Message returns a configuration that writes a text to the console of a machine that does
// not join. spec is the major version that the machine reads, 2 or 3.
func Message(spec int, text string) ([]byte, error) {
	source := "data:," + url.PathEscape("\n"+strings.TrimSpace(text)+"\n\n")
	const at = "/etc/issue.d/99-refit-boot-image.issue"
	file := map[string]any{"path": at, "mode": 0o644, "overwrite": true, "contents": map[string]any{"source": source}}
	version := Target
	if spec == 2 {
		version, file["filesystem"] = "2.2.0", "root"
	} else if spec != 3 {
		return nil, fmt.Errorf("version %d of Ignition is not known", spec)
	}
	return json.Marshal(map[string]any{"ignition": map[string]any{"version": version}, "storage": map[string]any{"files": []any{file}}})
}
