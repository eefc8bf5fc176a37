package convert

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JoinNamespace has the Secrets of tokens and configurations, with these labels,
// annotations and keys.
const (
	JoinNamespace        = "refit-joins"
	LabelJoinPool        = "refit.dev/join-pool"
	AnnotationJoinUntil  = "refit.dev/join-until"
	AnnotationJoinUsedAt = "refit.dev/join-used-at"
	AnnotationJoinUsedBy = "refit.dev/join-used-by"
	AnnotationMinimum    = "refit.dev/minimum-ignition"
	AnnotationFix        = "refit.dev/boot-image-fix"
	// On a pool's configuration: the minimum OS version of a boot image, the
	// BootImagePolicy with additional rules, and the MachineSource of its machines. Also
	// where they fetch the agent (URL#sha512-HEX) that checks them.
	AnnotationMinimumOS = "refit.dev/minimum-os"
	AnnotationPolicy    = "refit.dev/boot-image-policy"
	AnnotationSource    = "refit.dev/machine-source"
	AnnotationAgent     = "refit.dev/first-boot-agent"
	// On a token's record: its Machine (namespace/name) if known, and for a refused
	// machine why, when, and from which address.
	AnnotationMachine     = "refit.dev/join-machine"
	AnnotationRefused     = "refit.dev/join-refused"
	AnnotationRefusedAt   = "refit.dev/join-refused-at"
	AnnotationRefusedFrom = "refit.dev/join-refused-from"
	KeyConfig             = "config"
	// KeyUserData is the first answer to machines with cloud-init; it may be empty, and
	// without the key such machines get no answer.
	KeyUserData = "user-data"
	// Path is the URL path before the token.
	Path = "/join/"
	// Server is the Secret with the server's certificates, in refit-system.
	Server = "refit-joins"
)

// tokenSize is the length of a token in bytes.
const tokenSize = 32

// NewJoinToken returns a token for one machine of a pool, and the metadata of the Secret that is its
// record. The record does not contain the token.
func NewJoinToken(pool string, until time.Time) (token string, record metav1.ObjectMeta, err error) {
	raw := make([]byte, tokenSize)
	if _, err := rand.Read(raw); err != nil {
		return "", record, err
	}
	token = base64.RawURLEncoding.EncodeToString(raw)
	return token, metav1.ObjectMeta{Namespace: JoinNamespace, Name: JoinSecretName(token), Labels: map[string]string{LabelJoinPool: pool},
		Annotations: map[string]string{AnnotationJoinUntil: until.UTC().Format(time.RFC3339)}}, nil
}

// JoinSecretName returns the name of a token's record, empty for an invalid token.
func JoinSecretName(token string) string {
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	return "refit-join-" + hex.EncodeToString(sum[:])[:40]
}
