package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// object keeps the words of the JSON where they can be compared with the schema.
type object map[string]any

// status prints the document; a bootc that does not know the flags ends with 2.
func status(args []string) error {
	known := [][]string{{"--json"}, {"--format=json"}, {"--format=json", "--format-version=1"}, {"--format=json", "--format-version=0"}}
	if !slices.ContainsFunc(known, func(k []string) bool { return slices.Equal(k, args) }) {
		return usage("unexpected argument " + strings.Join(args, " "))
	}
	h, err := read()
	if err != nil {
		return err
	}
	order := "default"
	if h.queued() {
		order = "rollback"
	}
	spec := object{"image": nil, "bootOrder": order}
	if i := h.spec(); i != nil {
		spec["image"] = i.json()
	}
	var kind any
	if b := h.booted(); b != nil && b.digest != "" {
		kind = "bootcHost"
	}
	b, err := json.Marshal(object{
		"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "metadata": object{"name": "host"}, "spec": spec,
		"status": object{
			"staged": h.staged().json(), "booted": h.booted().json(), "rollback": h.rollback().json(),
			"rollbackQueued": h.queued(), "type": kind, "usrOverlay": nil,
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	return nil
}

func (i image) json() object {
	return object{"image": i.name, "transport": i.transport}
}

func (d *deployment) json() any {
	if d == nil {
		return nil
	}
	serial, _ := strconv.Atoi(d.serial)
	out := object{"image": nil, "cachedUpdate": nil, "incompatible": d.layered, "pinned": false, "softRebootCapable": d.isStaged && isSoft(), "store": nil,
		"ostree": object{"checksum": d.checksum, "deploySerial": serial, "stateroot": d.osname}}
	if d.digest != "" {
		out["store"] = "ostreeContainer"
		out["image"] = d.imageStatus(d.digest)
	}
	if b, err := os.ReadFile("/run/bootc-cached-update"); err == nil && d.isBooted {
		out["cachedUpdate"] = d.imageStatus(string(b))
	}
	if !isOld() {
		_, err := os.Stat(locked)
		out["downloadOnly"] = d.isStaged && err == nil
	}
	return out
}

func (d *deployment) imageStatus(digest string) object {
	return object{"image": d.image.json(), "version": nil, "timestamp": nil, "imageDigest": digest, "architecture": "amd64"}
}
