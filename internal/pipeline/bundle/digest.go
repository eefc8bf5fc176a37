package bundle

import (
	"crypto/sha256"
	"encoding/hex"
)

const digestPrefix = "sha256:"

// DigestOf is the digest of b, sha256: and 64 lower-case hex digits.
func DigestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return FormatDigest(sum)
}

// FormatDigest writes a SHA-256 as a digest.
func FormatDigest(sum [HashSize]byte) string { return digestPrefix + hex.EncodeToString(sum[:]) }

// ValidDigest reports whether d is sha256: and 64 lower-case hex digits.
func ValidDigest(d string) bool {
	if len(d) != len(digestPrefix)+2*HashSize || d[:len(digestPrefix)] != digestPrefix {
		return false
	}
	for _, c := range d[len(digestPrefix):] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
