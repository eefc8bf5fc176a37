package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Target is the version that configurations are converted to: the oldest of
// version 3, so that every image of version 3 reads it.
const Target = "3.0.0"

// Largest is the size in bytes above which nothing is read.
const Largest = 2 << 20

// ErrNotIgnition is what is no Ignition configuration: cloud-init, a script.
var ErrNotIgnition = errors.New("it is no Ignition configuration")

// Version of an Ignition configuration.
func Version(data []byte) (string, error) {
	var c struct {
		Ignition *struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	if len(data) > Largest || json.Unmarshal(data, &c) != nil || c.Ignition == nil || c.Ignition.Version == "" {
		return "", ErrNotIgnition
	}
	return c.Ignition.Version, nil
}

// Upgrade converts version 2 to version 3. What is of version 3 comes back as it
// is, with the version it has.
func Upgrade(data []byte) (out []byte, from string, err error) {
	from, err = Version(data)
	if err != nil {
		return nil, "", err
	}
	major, _, _ := strings.Cut(from, ".")
	switch major {
	case "3":
		return data, from, nil
	case "2":
	default:
		return nil, from, fmt.Errorf("version %s of Ignition is not known", from)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var in map[string]any
	if err := dec.Decode(&in); err != nil {
		return nil, from, err
	}
	u := &upgrade{paths: map[string]string{"root": ""}}
	converted := u.config(part{in, ""})
	if len(u.problems) > 0 {
		sort.Strings(u.problems)
		return nil, from, fmt.Errorf("it cannot be converted from version %s without losing something: %s", from, strings.Join(u.problems, "; "))
	}
	out, err = json.Marshal(converted)
	return out, from, err
}

// part of the old configuration, and where it stands. Keys are taken out; what is
// left in the end is a problem.
type part struct {
	m  map[string]any
	at string
}

// upgrade collects what cannot be carried over.
type upgrade struct {
	problems []string
	// paths of file systems by their name in version 2.
	paths map[string]string
}

func (u *upgrade) problem(at, what string) { u.problems = append(u.problems, at+": "+what) }

// done: nothing may be left.
func (u *upgrade) done(p part) {
	for k, v := range p.m {
		if !empty(v) {
			u.problem(p.at+"."+k, "it has no counterpart that is known")
		}
	}
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case string:
		return t == ""
	case bool:
		return !t
	case []any:
		return len(t) == 0
	case map[string]any:
		for _, x := range t {
			if !empty(x) {
				return false
			}
		}
		return true
	}
	return false
}

func (p part) takeKey(key string) any {
	v := p.m[key]
	delete(p.m, key)
	return v
}

// object under a key, taken out; an empty one if there is none.
func (u *upgrade) object(p part, key string) part {
	at := strings.TrimPrefix(p.at+"."+key, ".")
	v := p.takeKey(key)
	m, ok := v.(map[string]any)
	if v != nil && !ok {
		u.problem(at, "it is no object")
	}
	if m == nil {
		m = map[string]any{}
	}
	return part{m, at}
}

// objects of a list under a key, taken out.
func (u *upgrade) objects(p part, key string) []part {
	at := strings.TrimPrefix(p.at+"."+key, ".")
	v := p.takeKey(key)
	list, ok := v.([]any)
	if v != nil && !ok {
		u.problem(at, "it is no list")
	}
	var out []part
	for i, x := range list {
		m, ok := x.(map[string]any)
		if !ok {
			u.problem(at, "it holds something that is no object")
			continue
		}
		out = append(out, part{m, at + "[" + strconv.Itoa(i) + "]"})
	}
	return out
}

// keep carries keys over as they are.
func keep(from part, to map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		if v := from.takeKey(k); v != nil {
			to[k] = v
		}
	}
	return to
}

func (u *upgrade) config(in part) map[string]any {
	out := map[string]any{"ignition": u.ignition(u.object(in, "ignition"))}
	storage := u.object(in, "storage")
	networkd := u.object(in, "networkd")
	s := u.storage(storage)
	if files := u.networkd(networkd); len(files) > 0 {
		list, _ := s["files"].([]any)
		s["files"] = append(list, files...)
	}
	for name, value := range map[string]map[string]any{"storage": s, "systemd": u.systemd(u.object(in, "systemd")), "passwd": u.passwd(u.object(in, "passwd"))} {
		if len(value) > 0 {
			out[name] = value
		}
	}
	u.done(in)
	return out
}

func (u *upgrade) ignition(in part) map[string]any {
	in.takeKey("version")
	out := map[string]any{"version": Target}
	config := u.object(in, "config")
	c := map[string]any{}
	var merge []any
	for _, a := range u.objects(config, "append") {
		merge = append(merge, u.resource(a))
	}
	if len(merge) > 0 {
		c["merge"] = merge
	}
	if r := u.object(config, "replace"); len(r.m) > 0 {
		c["replace"] = u.resource(r)
	}
	u.done(config)
	if len(c) > 0 {
		out["config"] = c
	}
	keep(in, out, "timeouts")
	security := u.object(in, "security")
	tls := u.object(security, "tls")
	var cas []any
	for _, ca := range u.objects(tls, "certificateAuthorities") {
		cas = append(cas, u.resource(ca))
	}
	u.done(tls)
	u.done(security)
	if len(cas) > 0 {
		out["security"] = map[string]any{"tls": map[string]any{"certificateAuthorities": cas}}
	}
	u.done(in)
	return out
}

// resource is something that is fetched.
func (u *upgrade) resource(in part) map[string]any {
	out := keep(in, map[string]any{}, "source", "compression")
	if v := u.object(in, "verification"); len(v.m) > 0 {
		if h := keep(v, map[string]any{}, "hash"); len(h) > 0 {
			out["verification"] = h
		}
		u.done(v)
	}
	u.done(in)
	return out
}

func (u *upgrade) systemd(in part) map[string]any {
	units := map[string]map[string]any{}
	var names []string
	for _, p := range u.objects(in, "units") {
		v := keep(p, map[string]any{}, "name", "enabled", "mask", "contents")
		if e := p.takeKey("enable"); e == true {
			v["enabled"] = true
		}
		var dropins []any
		for _, d := range u.objects(p, "dropins") {
			dropins = append(dropins, keep(d, map[string]any{}, "name", "contents"))
			u.done(d)
		}
		u.done(p)
		name, _ := v["name"].(string)
		before := units[name]
		if before == nil {
			names, before = append(names, name), map[string]any{}
		}
		list, _ := before["dropins"].([]any)
		for k, x := range v { // a later unit of the same name counts, as it did
			before[k] = x
		}
		if dropins = byName(append(list, dropins...)); len(dropins) > 0 {
			before["dropins"] = dropins
		}
		units[name] = before
	}
	u.done(in)
	return listed("units", names, units)
}

// byName keeps the last of each name.
func byName(in []any) []any {
	last := map[any]int{}
	for i, x := range in {
		last[x.(map[string]any)["name"]] = i
	}
	var out []any
	for i, x := range in {
		if last[x.(map[string]any)["name"]] == i {
			out = append(out, x)
		}
	}
	return out
}

func listed(key string, names []string, values map[string]map[string]any) map[string]any {
	var list []any
	for _, n := range names {
		list = append(list, values[n])
	}
	if len(list) == 0 {
		return map[string]any{}
	}
	return map[string]any{key: list}
}

func (u *upgrade) passwd(in part) map[string]any {
	out := map[string]any{}
	users := map[string]map[string]any{}
	var names []string
	for _, p := range u.objects(in, "users") {
		v := keep(p, map[string]any{}, "name", "passwordHash", "sshAuthorizedKeys", "uid", "gecos", "homeDir", "noCreateHome", "primaryGroup", "groups", "noUserGroup", "noLogInit", "shell", "system")
		u.done(p) // create is not carried over by anything
		name, _ := v["name"].(string)
		before := users[name]
		if before == nil {
			names, before = append(names, name), map[string]any{}
		}
		keys, _ := before["sshAuthorizedKeys"].([]any)
		more, _ := v["sshAuthorizedKeys"].([]any)
		for k, x := range v {
			before[k] = x
		}
		if all := distinct(append(keys, more...)); len(all) > 0 {
			before["sshAuthorizedKeys"] = all
		}
		users[name] = before
	}
	for k, v := range listed("users", names, users) {
		out[k] = v
	}
	var groups []any
	for _, p := range u.objects(in, "groups") {
		groups = append(groups, keep(p, map[string]any{}, "name", "gid", "passwordHash", "system"))
		u.done(p)
	}
	if groups = byName(groups); len(groups) > 0 {
		out["groups"] = groups
	}
	u.done(in)
	return out
}

func distinct(in []any) []any {
	seen := map[any]bool{}
	var out []any
	for _, x := range in {
		if s, ok := x.(string); !ok || seen[s] {
			continue
		}
		seen[x] = true
		out = append(out, x)
	}
	return out
}
