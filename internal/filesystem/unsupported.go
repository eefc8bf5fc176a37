package filesystem

import "io"

// UnsupportedError is the error of Open for a medium in a format that is known, but not read here.
type UnsupportedError struct {
	// Kind is the name of the format.
	Kind string
}

func (e *UnsupportedError) Error() string {
	return e.Kind + " is not supported: use FAT, exFAT, ISO 9660 or ext4"
}

// signatures are what other formats have at a fixed place.
var signatures = []struct {
	at          int64
	bytes, kind string
}{
	{3, "NTFS    ", "NTFS"},
	{3, "-FVE-FS-", "BitLocker encryption"},
	{3, "ReFS", "ReFS"},
	{0, "XFSB", "XFS"},
	{0, "LUKS\xba\xbe", "LUKS encryption"},
	{0, "hsqs", "SquashFS"},
	{32, "NXSB", "APFS"},
	{512, "LABELONE", "LVM"},
	{1024, "H+\x00\x04", "HFS+"},
	{1024, "HX\x00\x05", "HFS+"},
	{1024, "\x10\x20\xf5\xf2", "F2FS"},
	{4096, "\xfc\x4e\x2b\xa9", "Linux software RAID"},
	{32769, "BEA01", "UDF"},
	{65600, "_BHRfS_M", "Btrfs"},
}

// unsupported returns the error for a medium that no reader knows.
func unsupported(r io.ReaderAt, size int64) error {
	m := medium{r: r, size: size}
	var b [8]byte
	for _, s := range signatures {
		p := b[:len(s.bytes)]
		if !m.contains(s.at, int64(len(p))) {
			continue
		}
		if err := m.readFull(p, s.at, "signature"); err != nil {
			return err
		}
		if string(p) == s.bytes {
			return &UnsupportedError{Kind: s.kind}
		}
	}
	return ErrUnknown
}
