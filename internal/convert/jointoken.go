package convert

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JoinNamespace of tokens and configurations, and how they are marked.
const (
	JoinNamespace        = "refit-joins"
	LabelJoinPool        = "refit.dev/join-pool"
	AnnotationJoinUntil  = "refit.dev/join-until"
	AnnotationJoinUsedAt = "refit.dev/join-used-at"
	AnnotationJoinUsedBy = "refit.dev/join-used-by"
	AnnotationMinimum    = "refit.dev/minimum-ignition"
	AnnotationFix        = "refit.dev/boot-image-fix"
	// On a pool's configuration: the least OS version in a boot image, the
	// BootImagePolicy whose rules hold besides, the MachineSource that its machines
	// come from, and where they fetch the agent (URL#sha512-HEX) that checks them.
	AnnotationMinimumOS = "refit.dev/minimum-os"
	AnnotationPolicy    = "refit.dev/boot-image-policy"
	AnnotationSource    = "refit.dev/machine-source"
	AnnotationAgent     = "refit.dev/first-boot-agent"
	// On a token's record: the Machine it was made for (namespace/name), if it is
	// known, and that its machine was refused, why, when, and from which address.
	AnnotationMachine     = "refit.dev/join-machine"
	AnnotationRefused     = "refit.dev/join-refused"
	AnnotationRefusedAt   = "refit.dev/join-refused-at"
	AnnotationRefusedFrom = "refit.dev/join-refused-from"
	KeyConfig             = "config"
	// KeyUserData is what machines with cloud-init are given first; it may be empty, and
	// without the key such machines are given nothing.
	KeyUserData = "user-data"
	// Path of the server, before the token.
	Path = "/join/"
	// Server is the Secret with its certificates, in refit-system.
	Server = "refit-joins"
)

// tokenSize of a token in bytes.
const tokenSize = 32

// NewJoinToken makes a token for one machine of a pool, and its record, which does not
// hold it.
func NewJoinToken(pool string, until time.Time) (token string, record *corev1.Secret, err error) {
	raw := make([]byte, tokenSize)
	if _, err := rand.Read(raw); err != nil {
		return "", nil, err
	}
	token = base64.RawURLEncoding.EncodeToString(raw)
	return token, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: JoinNamespace, Name: JoinSecretName(token), Labels: map[string]string{LabelJoinPool: pool},
		Annotations: map[string]string{AnnotationJoinUntil: until.UTC().Format(time.RFC3339)}}}, nil
}

// JoinSecretName of the record of a token; empty for what is none.
func JoinSecretName(token string) string {
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	return "refit-join-" + hex.EncodeToString(sum[:])[:40]
}
