package bundle

import (
	"bytes"
	"errors"
	"fmt"
)

// Label has the few values that a decision about a bundle needs. The process that parses
// an untrusted header passes it to the process that decides. Its size is bounded.
type Label struct {
	Digest   string `json:"digest"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	MinRefit string `json:"minRefit"`
	// Slot is the content of the signature slot without the spaces at its end.
	Slot []byte `json:"slot"`
	// HeaderSize and FileSize in bytes.
	HeaderSize int64 `json:"headerSize"`
	FileSize   int64 `json:"fileSize"`
}

// Label of the bundle.
func (h *Header) Label() (Label, error) {
	slot, err := EncodeSlot(h.Signatures)
	return Label{Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version, MinRefit: h.Metadata.MinRefit,
		Slot: bytes.TrimRight(slot, " "), HeaderSize: h.size, FileSize: h.end}, err
}

// Header is a header with what the label says and nothing else: Decide and SignedBy
// work on it. The label may come from a process that a bundle took over, so that every
// form is checked. What it says of the digest becomes true when the whole header is
// parsed with that digest (ParseHeaderOf).
func (l Label) Header() (*Header, error) {
	switch {
	case !ValidDigest(l.Digest), !ValidName(l.Name), !ValidVersion(l.Version), !ValidVersion(l.MinRefit):
		return nil, errors.New("label of a bundle: a digest, name or version has a bad form")
	case l.HeaderSize <= 0 || l.HeaderSize > MaxHeaderSize || l.FileSize < l.HeaderSize || l.FileSize > 2*maxContentSize:
		return nil, fmt.Errorf("label of a bundle: it cannot have %d bytes of header and %d in all", l.HeaderSize, l.FileSize)
	case len(l.Slot) > SignatureSlotSize:
		return nil, fmt.Errorf("label of a bundle: %d bytes of signatures", len(l.Slot))
	}
	h := &Header{Digest: l.Digest, Metadata: &Metadata{Name: l.Name, Version: l.Version, MinRefit: l.MinRefit}, size: l.HeaderSize, end: l.FileSize}
	slot := append(bytes.Clone(l.Slot), bytes.Repeat([]byte{' '}, SignatureSlotSize-len(l.Slot))...)
	var found string
	if h.Signatures, found = decodeSlot(slot, h.statement()); found != "" {
		return nil, errors.New("label of a bundle: its signatures are " + found)
	}
	return h, nil
}
