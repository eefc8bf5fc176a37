package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// addFile carries a file over, or says why not.
func (r *importer) addFile(f configNode) {
	path := f.text("path")
	at := f.at + " " + path
	out := model.ConfigFile{Path: path, Owner: importOwner(f.object("user")), Group: importOwner(f.object("group"))}
	out.Mode = 0o644
	if m, ok := f.number("mode"); ok {
		out.Mode = uint32(m) & 0o7777
	}
	f.consume("overwrite")
	if len(f.list("append")) > 0 {
		r.addNotImported(at, "it appends to a file, and refit writes whole files")
		return
	}
	var why string
	if out.Data, why = importContents(f.object("contents")); why != "" {
		r.addNotImported(at, why)
		return
	}
	if why = model.LooksSecret(path, out.Data); why != "" {
		r.addNotImported(at, why+"; every node reads a configuration, so bring it another way")
		return
	}
	if why = model.ProtectedPath(path); why != "" {
		r.addNotImported(at, why)
		return
	}
	f.reportRest("refit has nothing like it")
	r.out.Files = append(r.out.Files, out)
}

// importOwner by name, else by number, else root.
func importOwner(n configNode) string {
	if name := n.text("name"); name != "" {
		return name
	}
	if id, ok := n.number("id"); ok && id != 0 {
		return fmt.Sprint(id)
	}
	return "root"
}

// importContents of a file, or why they are not taken.
func importContents(n configNode) (data []byte, why string) {
	source := n.text("source")
	compression := n.text("compression")
	hash := n.object("verification").text("hash")
	n.consume("httpHeaders")
	switch {
	case source == "":
	case !strings.HasPrefix(source, "data:"):
		u, err := url.Parse(source)
		if err != nil {
			return nil, "its source is no address"
		}
		return nil, "it is fetched from " + u.Scheme + "://" + u.Host + ": fetch it and give it as contents, or bring it as a payload of a bundle"
	default:
		var err error
		if data, err = decodeDataURL(source); err != nil {
			return nil, err.Error()
		}
	}
	data, err := decompress(data, compression)
	if err != nil {
		return nil, err.Error()
	}
	return data, verifyHash(data, hash)
}

// decodeDataURL reads RFC 2397.
func decodeDataURL(s string) ([]byte, error) {
	head, body, ok := strings.Cut(strings.TrimPrefix(s, "data:"), ",")
	if !ok {
		return nil, errors.New("its data address has no comma")
	}
	text, err := url.PathUnescape(body)
	if err != nil {
		return nil, errors.New("its data address is not escaped as it should be")
	}
	if !strings.HasSuffix(head, ";base64") {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("its data address is no base64")
	}
	return data, nil
}

func decompress(data []byte, compression string) ([]byte, error) {
	switch compression {
	case "":
		return data, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, errors.New("it says gzip and is none")
		}
		out, err := io.ReadAll(io.LimitReader(z, model.MaxFile+1))
		if err != nil {
			return nil, errors.New("its gzip is cut off or damaged")
		}
		if len(out) > model.MaxFile {
			return nil, fmt.Errorf("unpacked it has more than %d bytes", model.MaxFile)
		}
		return out, nil
	}
	return nil, fmt.Errorf("compression %s is not read", compression)
}

// verifyHash compares data with its declared hash, and returns "" if they match.
func verifyHash(data []byte, hash string) string {
	kind, want, _ := strings.Cut(hash, "-")
	var got string
	switch kind {
	case "":
		return ""
	case "sha256":
		sum := sha256.Sum256(data)
		got = hex.EncodeToString(sum[:])
	case "sha512":
		sum := sha512.Sum512(data)
		got = hex.EncodeToString(sum[:])
	default:
		return "hash " + kind + " is not known"
	}
	if got != want {
		return "its bytes are not what its hash says"
	}
	return ""
}
