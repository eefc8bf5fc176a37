package updatecmd

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// Bounds of a directory with receipts.
const (
	maxReceiptFiles = 10_000 // files, directories and links in all
	maxReceiptDepth = 8
)

// NewReceipts returns the command.
func NewReceipts(a *inputs.Access) *cobra.Command {
	var pubs []string
	var output *string
	c := &cobra.Command{
		Use:   "receipts DIR",
		Short: "Add up the receipts of many sites",
		Long: `Read all receipts below a directory, and show which site has which version, what failed
and why, and the totals. A receipt is known by its content, not by its name: JSON of
refit receipt, or its text in a file. Copies count once. For each site the newest update
counts.

With --pub, only receipts with a valid signature of one of the keys count. Others are
listed with the reason. Without --pub, no signature is verified.

Exit codes: 0 no site needs a person, 3 a site does, or a part of the directory was not
read, 6 a file was rejected.`,
		Example: "  refit receipts /srv/receipts --pub north.pub --pub south.pub",
		Args:    console.Args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := console.CheckOutput(*output); err != nil {
				return err
			}
			keys, err := inputs.ReadPublicKeys(pubs)
			if err != nil {
				return err
			}
			w, err := readReceipts(args[0], keys)
			if err != nil {
				return err
			}
			v := explain.AddReceipts(time.Now(), w.found, len(keys) > 0)
			v.OtherFiles, v.Skipped = w.others, w.skipped()
			if len(v.Sites)+len(v.Rejected) == 0 {
				return console.UsageErrorf("no receipt is below %s: refit receipt writes them at the sites", args[0])
			}
			if err := render.Receipts(a.Out, *output, v); err != nil {
				return err
			}
			return receiptsCode(v, w.incomplete)
		},
	}
	c.Flags().StringArrayVar(&pubs, "pub", nil, "public key (refit.pub) of a site; may be repeated")
	output = console.OutputFlag(c)
	return c
}

func receiptsCode(v explain.Receipts, incomplete bool) error {
	switch {
	case len(v.Rejected) > 0:
		return console.SilentExit(console.ExitVerification)
	case v.NeedPerson > 0 || incomplete:
		return console.SilentExit(console.ExitBlocked)
	}
	return nil
}

// receiptWalk reads a directory.
type receiptWalk struct {
	root  *os.Root
	keys  map[string]ed25519.PublicKey
	found []explain.CheckedReceipt
	// seen counts all entries, others the files that are no receipts, links those that were not followed.
	seen, others, links int
	// unread are parts that were not read.
	unread []explain.SkippedPath
	// incomplete: a bound ended the walk early.
	incomplete bool
}

// readReceipts reads the receipts below a directory, or one file. It opens nothing outside of the
// directory.
func readReceipts(dir string, keys map[string]ed25519.PublicKey) (*receiptWalk, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, console.UsageError(err)
	}
	start := "."
	if !st.IsDir() {
		dir, start = filepath.Dir(dir), filepath.Base(dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	w := &receiptWalk{root: root, keys: keys}
	if start != "." {
		w.readFile(start)
		return w, nil
	}
	w.readDir(start, 0)
	return w, nil
}

// skipped lists what was not read.
func (w *receiptWalk) skipped() []explain.SkippedPath {
	if w.links == 0 {
		return w.unread
	}
	return append(w.unread, explain.SkippedPath{Path: ".", Why: text.Count(w.links, "symbolic link") + " not followed"})
}

func (w *receiptWalk) skip(name, why string) {
	w.incomplete = true
	w.unread = append(w.unread, explain.SkippedPath{Path: name, Why: why})
}

func (w *receiptWalk) readDir(name string, depth int) {
	entries, err := w.list(name)
	if err != nil {
		w.skip(name, err.Error())
	}
	for _, e := range entries {
		if w.seen++; w.seen > maxReceiptFiles {
			if w.seen == maxReceiptFiles+1 {
				w.skip(name, fmt.Sprintf("there are more than %d files: use several directories", maxReceiptFiles))
			}
			return
		}
		below := path.Join(name, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			w.links++
		case e.IsDir() && depth == maxReceiptDepth:
			w.skip(below, fmt.Sprintf("it is more than %d directories deep", maxReceiptDepth))
		case e.IsDir():
			w.readDir(below, depth+1)
		case e.Type().IsRegular():
			w.readFile(below)
		default:
			w.others++
		}
	}
}

// list returns the entries of a directory by name, at most as many as are still read.
func (w *receiptWalk) list(name string) ([]os.DirEntry, error) {
	d, err := w.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxReceiptFiles + 1 - min(w.seen, maxReceiptFiles))
	if errors.Is(err, io.EOF) { // an empty directory
		err = nil
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (w *receiptWalk) readFile(name string) {
	data, err := w.readStart(name)
	switch {
	case err != nil:
		w.found = append(w.found, explain.CheckedReceipt{File: name, State: explain.ReceiptUnreadable, Message: text.CleanLine(err.Error())})
	case explain.IsReceipt(data) || strings.HasPrefix(path.Base(name), "refit-receipt-"):
		w.found = append(w.found, explain.CheckReceipt(name, data, w.keys))
	default:
		w.others++
	}
}

// readStart reads so much of a file that a receipt is whole, and a larger file is known to be none.
func (w *receiptWalk) readStart(name string) ([]byte, error) {
	f, err := w.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in place of the file never waits
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, explain.MaxReceiptFile+1))
}
