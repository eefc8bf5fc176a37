package ignition

import (
	"encoding/json"
	"net/url"
	"path"
	"strings"
)

// sectors of a MiB: version 2 counts partitions in sectors of 512 bytes.
const sectors = 2048

func (u *upgrade) storage(in part) map[string]any {
	out := map[string]any{}
	add := func(key string, list []any) {
		if len(list) > 0 {
			out[key] = list
		}
	}
	var disks, raids, filesystems []any
	for _, d := range u.objects(in, "disks") {
		disks = append(disks, u.disk(d))
	}
	for _, r := range u.objects(in, "raid") {
		raids = append(raids, keep(r, map[string]any{}, "name", "level", "devices", "spares", "options"))
		u.done(r)
	}
	for _, f := range u.objects(in, "filesystems") {
		if v := u.filesystem(f); v != nil {
			filesystems = append(filesystems, v)
		}
	}
	add("disks", disks)
	add("raid", raids)
	add("filesystems", filesystems)
	add("files", u.files(u.objects(in, "files")))
	var directories, links []any
	for _, d := range u.objects(in, "directories") {
		directories = append(directories, u.node(d, "mode", "overwrite"))
	}
	for _, l := range u.objects(in, "links") {
		links = append(links, u.node(l, "target", "hard", "overwrite"))
	}
	add("directories", byPath(directories))
	add("links", byPath(links))
	u.done(in)
	return out
}

func (u *upgrade) disk(in part) map[string]any {
	out := keep(in, map[string]any{}, "device", "wipeTable")
	var partitions []any
	for _, p := range u.objects(in, "partitions") {
		v := keep(p, map[string]any{}, "label", "number", "guid", "typeGuid", "wipePartitionEntry", "shouldExist", "sizeMiB", "startMiB")
		u.mebibytes(p, v, "size", "sizeMiB")
		u.mebibytes(p, v, "start", "startMiB")
		u.done(p)
		partitions = append(partitions, v)
	}
	if len(partitions) > 0 {
		out["partitions"] = partitions
	}
	u.done(in)
	return out
}

func (u *upgrade) mebibytes(from part, to map[string]any, key, as string) {
	v := from.takeKey(key)
	if v == nil {
		return
	}
	n, ok := v.(json.Number)
	count, err := n.Int64()
	if !ok || err != nil || count%sectors != 0 {
		u.problem(from.at+"."+key, "it is no whole number of MiB (2048 sectors)")
		return
	}
	if _, twice := to[as]; twice {
		u.problem(from.at+"."+key, "it is there as "+as+" too")
		return
	}
	to[as] = count / sectors
}

// filesystem: version 2 names them, and files refer to the name; version 3 has
// paths only. One without a mount is a path alone.
func (u *upgrade) filesystem(in part) map[string]any {
	name, _ := in.takeKey("name").(string)
	at, _ := in.takeKey("path").(string)
	mount := u.object(in, "mount")
	if name != "" {
		u.paths[name] = at
		if at == "" && len(mount.m) > 0 {
			u.paths[name] = unmounted
		}
	}
	if len(mount.m) == 0 {
		u.done(in)
		return nil
	}
	out := keep(mount, map[string]any{}, "device", "format", "wipeFilesystem", "label", "uuid", "options")
	if c := u.object(mount, "create"); len(c.m) > 0 { // of version 2.0: force and options
		if c.takeKey("force") == true {
			out["wipeFilesystem"] = true
		}
		keep(c, out, "options")
		u.done(c)
	}
	if at != "" {
		out["path"] = at
	}
	u.done(mount)
	u.done(in)
	return out
}

// unmounted marks a file system that no path leads to.
const unmounted = "\x00"

// node is what files, directories and links have in common.
func (u *upgrade) node(in part, keys ...string) map[string]any {
	out := keep(in, map[string]any{}, keys...)
	at, _ := in.takeKey("path").(string)
	fs, _ := in.takeKey("filesystem").(string)
	prefix, known := u.paths[fs]
	switch {
	case fs == "":
		known = true
	case prefix == unmounted:
		u.problem(in.at, "file system "+fs+" is mounted nowhere in version 3, so "+at+" has no path")
	}
	if !known {
		u.problem(in.at, "there is no file system "+fs)
	}
	if !strings.HasPrefix(at, "/") {
		u.problem(in.at, "its path is not absolute")
	}
	out["path"] = at
	if prefix != "" && prefix != unmounted {
		out["path"] = path.Join(prefix, at)
	}
	for _, who := range []string{"user", "group"} {
		if p := u.object(in, who); len(p.m) > 0 {
			out[who] = keep(p, map[string]any{}, "id", "name")
			u.done(p)
		}
	}
	u.done(in)
	return out
}

// files: in version 2 a later one of the same path was written over the earlier,
// or added to it; version 3 wants each path once.
func (u *upgrade) files(in []part) []any {
	byPath := map[string]map[string]any{}
	var order []string
	for _, p := range in {
		contents := u.object(p, "contents")
		appends := p.takeKey("append") == true
		var fetched map[string]any
		if len(contents.m) > 0 {
			fetched = u.resource(contents)
		}
		v := u.node(p, "mode", "overwrite")
		at, _ := v["path"].(string)
		before := byPath[at]
		if before == nil || !appends {
			if before == nil {
				order = append(order, at)
			}
			byPath[at] = v
			before = v
		}
		if appends {
			delete(before, "overwrite")
			list, _ := before["append"].([]any)
			if fetched != nil {
				before["append"] = append(list, fetched)
			}
			continue
		}
		if fetched != nil {
			before["contents"] = fetched
		}
		if _, said := before["overwrite"]; !said {
			before["overwrite"] = true // the default of version 2
		}
	}
	var out []any
	for _, at := range order {
		out = append(out, byPath[at])
	}
	return out
}

// byPath keeps the last of each path.
func byPath(in []any) []any {
	last := map[any]int{}
	for i, x := range in {
		last[x.(map[string]any)["path"]] = i
	}
	var out []any
	for i, x := range in {
		if last[x.(map[string]any)["path"]] == i {
			out = append(out, x)
		}
	}
	return out
}

// networkd is gone in version 3: its units become files.
func (u *upgrade) networkd(in part) []any {
	var out []any
	file := func(at string, contents any) {
		text, _ := contents.(string)
		out = append(out, map[string]any{"path": at, "mode": 0o644, "overwrite": true, "contents": map[string]any{"source": "data:," + url.PathEscape(text)}})
	}
	for _, p := range u.objects(in, "units") {
		name, _ := p.takeKey("name").(string)
		if name == "" || strings.Contains(name, "/") {
			u.problem(p.at, "it has no name of a file")
		}
		if c := p.takeKey("contents"); c != nil {
			file("/etc/systemd/network/"+name, c)
		}
		for _, d := range u.objects(p, "dropins") {
			n, _ := d.takeKey("name").(string)
			if n == "" || strings.Contains(n, "/") {
				u.problem(d.at, "it has no name of a file")
			}
			file("/etc/systemd/network/"+name+".d/"+n, d.takeKey("contents"))
			u.done(d)
		}
		u.done(p)
	}
	u.done(in)
	return out
}
