package filesystem

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

const (
	// maxContinuations is how many continuation areas one directory record may have.
	maxContinuations = 16
	// maxName is how many bytes a Rock Ridge name may have, as in Linux.
	maxName = 255
)

// rockRidgeSizes are the smallest sizes of the entries that are read, without their headers.
var rockRidgeSizes = map[string]int{"CE": 24, "CL": 8, "ER": 4, "NM": 1, "PX": 32, "TF": 1}

// rockRidge is what the system use area of a directory record says.
type rockRidge struct {
	name           []byte
	named, partial bool
	mode           fs.FileMode
	hasMode        bool
	modTime        time.Time
	child          uint32
	moved          bool
	refusal        string
	// extension is true if the area names Rock Ridge as the extension in use.
	extension bool
}

// detectRockRidge reads from the first record of the root directory whether Rock Ridge is in use.
func (v *isoVolume) detectRockRidge(root isoRecord) error {
	if !root.startsSharing() {
		return nil
	}
	rr, err := v.readRockRidge(root)
	if err != nil {
		return err
	}
	v.rockRidge, v.skip = rr.extension, int(root.systemUse[6])
	return nil
}

// startsSharing reports whether the record has the entry SP, as in the root directory.
func (r isoRecord) startsSharing() bool {
	return len(r.systemUse) >= 7 && string(r.systemUse[:6]) == "SP\x07\x01\xbe\xef"
}

// readRockRidge reads the entries of a record and of its continuation areas.
func (v *isoVolume) readRockRidge(rec isoRecord) (*rockRidge, error) {
	rr := &rockRidge{}
	area := rec.systemUse
	if !rec.startsSharing() {
		area = area[min(v.skip, len(area)):]
	}
	for range maxContinuations {
		next, err := rr.parse(area)
		if err == nil && next.length > isoSector {
			err = fmt.Errorf("continuation area of %d bytes is longer than a sector", next.length)
		}
		if err != nil {
			return nil, v.errorf("directory record at byte %d: %w", rec.at, err)
		}
		if next.length == 0 {
			return rr, nil
		}
		area = make([]byte, next.length)
		if err := v.read(area, next.at, "continuation area"); err != nil {
			return nil, err
		}
	}
	return nil, v.errorf("directory record at byte %d has more than %d continuation areas", rec.at, maxContinuations)
}

// parse reads the entries of one area and returns where the next area is, if there is one.
func (rr *rockRidge) parse(area []byte) (next extent, err error) {
	for len(area) >= 4 && area[0] != 0 {
		signature, length := string(area[:2]), int(area[2])
		if length < 4+rockRidgeSizes[signature] || length > len(area) {
			return next, fmt.Errorf("system use entry %q has the length %d, its area has %d bytes left", signature, length, len(area))
		}
		data := area[4:length]
		switch signature {
		case "ST":
			return next, nil
		case "CE":
			next.at = int64(binary.LittleEndian.Uint32(data))*isoSector + int64(binary.LittleEndian.Uint32(data[8:]))
			next.length = int64(binary.LittleEndian.Uint32(data[16:]))
		default:
			if err := rr.add(signature, data); err != nil {
				return next, err
			}
		}
		area = area[length:]
	}
	return next, nil
}

func (rr *rockRidge) add(signature string, data []byte) error {
	switch signature {
	case "NM":
		return rr.addName(data)
	case "PX":
		return rr.addMode(binary.LittleEndian.Uint32(data))
	case "TF":
		return rr.addTimes(data)
	case "CL":
		rr.child = binary.LittleEndian.Uint32(data)
	case "RE":
		rr.moved = true
	case "SF":
		rr.refusal = "sparse files of Rock Ridge are not supported"
	case "ZF":
		rr.refusal = "compressed files (zisofs) are not supported"
	case "ER":
		id := data[4:][:min(int(data[0]), len(data)-4)]
		known := []string{"RRIP_1991A", "IEEE_P1282", "IEEE_1282"}
		rr.extension = rr.extension || slices.Contains(known, string(id))
	}
	return nil
}

// addName appends a part of the name. Flags: 1 another part follows, 2 and 4 "." and "..".
func (rr *rockRidge) addName(data []byte) error {
	if rr.named && !rr.partial {
		return fmt.Errorf("second name %q after %q", data[1:], rr.name)
	}
	rr.named, rr.partial = true, data[0]&1 != 0
	rr.name = append(rr.name, data[1:]...)
	switch {
	case data[0]&2 != 0:
		rr.name = []byte(".")
	case data[0]&4 != 0:
		rr.name = []byte("..")
	}
	if len(rr.name) > maxName {
		return fmt.Errorf("name is longer than %d bytes", maxName)
	}
	return nil
}

func (rr *rockRidge) addMode(unix uint32) error {
	mode, ok := unixMode(unix)
	if !ok {
		return fmt.Errorf("mode %#o has no known file type", unix)
	}
	rr.mode, rr.hasMode = mode, true
	return nil
}

// addTimes reads the time of the last change. The first byte says which times there are, in
// which form: 1 creation, 2 last change, 128 seventeen digits instead of seven bytes.
func (rr *rockRidge) addTimes(data []byte) error {
	flags, size := data[0], 7
	if flags&0x80 != 0 {
		size = 17
	}
	if flags&2 == 0 {
		return nil
	}
	start := 1 + size*int(flags&1)
	if start+size > len(data) {
		return fmt.Errorf("time stamps %#x do not fit into %d bytes", flags, len(data))
	}
	stamp := data[start:][:size]
	if size == 7 {
		rr.modTime = isoTime(stamp)
		return nil
	}
	if t, err := time.Parse("20060102150405", string(stamp[:14])); err == nil {
		rr.modTime = t.Add(-isoZone(stamp[16]))
	}
	return nil
}

// applyRockRidge replaces what the record says about a node by what Rock Ridge says.
func (n *isoNode) applyRockRidge(rec isoRecord) error {
	rr, err := n.v.readRockRidge(rec)
	if err != nil {
		return err
	}
	if rr.partial {
		return n.v.errorf("directory record at byte %d: name %q is not complete", rec.at, rr.name)
	}
	if rr.named {
		n.name = string(rr.name)
	}
	if n.refusal == "" {
		n.refusal = rr.refusal
	}
	if !rr.modTime.IsZero() {
		n.info.modTime = rr.modTime
	}
	n.moved = rr.moved
	if rr.child != 0 && !n.info.IsDir() {
		n.child = rr.child
		return nil
	}
	if rr.hasMode && rr.mode.IsDir() != n.info.IsDir() {
		return n.v.errorf("directory record at byte %d: Rock Ridge mode %v is of another type", rec.at, rr.mode)
	}
	if rr.hasMode {
		n.info.mode = rr.mode
	}
	return nil
}
