package inputs

import (
	"fmt"
	"io"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

// Manifest is a file with objects, or one that refit rendered.
type Manifest struct {
	// File is the path; of a chart the path of the template, which begins with the chart's name.
	File string
	Data []byte
	// Rendered: the lines of Data are not those of a file.
	Rendered bool
}

// maxRendered bounds all manifests of one source in bytes.
const maxRendered = 256 << 20

// EachManifest calls f for the files of manifests at a path: a file, a directory or - for
// standard input.
func EachManifest(stdin io.Reader, path string, f func(Manifest) error) error {
	total := int64(0)
	each := func(file string, data []byte) error {
		if total += int64(len(data)); total > maxRendered {
			return fmt.Errorf("%s: the manifests have more than %d bytes: name parts of it", path, maxRendered)
		}
		return f(Manifest{File: file, Data: data})
	}
	if path != "-" {
		return console.UsageError(eachManifestFile(path, imagerefs.MaxSize, each))
	}
	data, err := io.ReadAll(io.LimitReader(stdin, imagerefs.MaxSize+1))
	if err != nil {
		return fmt.Errorf("read manifests from standard input: %w", err)
	}
	return console.UsageError(each("stdin", data))
}
