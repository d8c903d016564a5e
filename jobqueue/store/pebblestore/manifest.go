package pebblestore

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	chunks "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The MANIFEST lists the tables that the store consists of. Pebble takes a damaged one for one that
// ends before the damage: it then lacks tables, or looks for some that are gone. So the disk writes
// the MANIFEST twice, and Open begins with the copy if more of that can be read.

// copyOf returns the name of the copy of a MANIFEST, and whether the file is one.
func copyOf(name string) (string, bool) {
	number, ok := strings.CutPrefix(filepath.Base(name), "MANIFEST-")
	return filepath.Join(filepath.Dir(name), "manifest-"+number+".copy"), ok
}

// twice is a file with a copy. A group is not reported done before both are synced, so each of them
// has all that counts.
type twice struct {
	vfs.File
	copy vfs.File
}

func createTwice(in vfs.FS, name, copied string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := in.Create(name, c)
	if err != nil {
		return nil, err
	}
	g, err := in.Create(copied, c)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return twice{f, g}, nil
}

func (f twice) Write(b []byte) (int, error) {
	c := bytes.Clone(b) // Pebble's files in memory change what they are given
	n, err := f.File.Write(b)
	if err == nil {
		_, err = f.copy.Write(c)
	}
	return n, err
}

func (f twice) Sync() error     { return errors.Join(f.File.Sync(), f.copy.Sync()) }
func (f twice) SyncData() error { return errors.Join(f.File.SyncData(), f.copy.SyncData()) }
func (f twice) Close() error    { return errors.Join(f.File.Close(), f.copy.Close()) }

// SyncTo may sync the copy as a whole: it is small.
func (f twice) SyncTo(n int64) (bool, error) {
	all, err := f.File.SyncTo(n)
	return all, errors.Join(err, f.copy.SyncData())
}

// betterManifest returns the copy of the MANIFEST if more of it can be read, and the name that it
// should have.
func betterManifest(path string, in vfs.FS) (name string, better []byte) {
	d, err := pebble.Peek(path, in)
	if err != nil || !d.Exists {
		return "", nil
	}
	name = d.ManifestFilename
	copied, _ := copyOf(name)
	if b := readAll(in, copied); records(b) > records(readAll(in, name)) {
		return name, b
	}
	return name, nil
}

// restoreManifest replaces the MANIFEST with its copy if that is better.
func (s *Store) restoreManifest(path string) error {
	name, better := betterManifest(path, s.set.fs)
	if better == nil {
		return nil
	}
	s.set.log.Error("jobqueue: the MANIFEST ends before its copy, by damage or in a crash; "+
		"the copy takes its place", "file", name)
	f, err := s.set.fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(better)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := s.set.fs.Rename(name+".new", name); err != nil {
		return err
	}
	dir, err := s.set.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// readAll returns what is in a file, or nothing if that cannot be read.
func readAll(in vfs.FS, name string) []byte {
	f, err := in.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	return b
}

// records counts the records of a MANIFEST up to the first that cannot be read.
func records(b []byte) (n int) {
	for r := chunks.NewReader(bytes.NewReader(b), 0); ; n++ {
		rec, err := r.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		if err != nil {
			return n
		}
	}
}
