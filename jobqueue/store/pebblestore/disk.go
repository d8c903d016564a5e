package pebblestore

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

const (
	memtableSize = 16 << 20 // larger ones cost more for each insertion than they save
	cacheSize    = 40 << 20 // a Reschedule of random jobs takes a quarter more CPU with 16 MB
	mostTables   = 4        // memtables in memory before callers wait
)

// options returns the options of Pebble. Filters and compression cost more than they save here:
// keys that are looked up are mostly there, and bodies are small.
func (s *Store) options() *pebble.Options {
	o := &pebble.Options{
		FS:                 s.disk,
		Lock:               s.lock,
		Logger:             logger{s},
		EventListener:      s.events(),
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       memtableSize,
		CacheSize:          cacheSize,
		MaxOpenFiles:       500,
		// Callers wait in room instead.
		MemTableStopWritesThreshold: 1 << 20,
		L0StopWritesThreshold:       1 << 20,
		L0CompactionThreshold:       4,
		LBaseMaxBytes:               64 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		Cleaner:                     cleaner{},
	}
	// Pebble's own looks ten times a second whether more compactions are allowed at a time than
	// before. Here it is always one.
	o.Experimental.CompactionScheduler =
		pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = 4 << 20 << i
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 4096
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.NoCompression }
	}
	return o
}

// A cleaner removes files that are not needed any more, logs included. Pebble writes to old logs
// again, and keeps as many as there ever were at a time, unless the cleaner is one that needs what
// is in them. They took 69 MB beside 100,000 jobs of 18 MB. Without them an Add of a lone caller
// takes a tenth longer.
type cleaner struct {
	pebble.DeleteCleaner // does the work: its Clean is less deep
	needsContents
}

type needsContents struct{ pebble.ArchiveCleaner }

func (s *Store) events() *pebble.EventListener {
	t := &s.stall
	l := &pebble.EventListener{
		BackgroundError: func(err error) {
			err = fmt.Errorf("the disk: %w", err)
			t.failing.Store(&err)
			t.wake()
		},
		WALCreated: func(pebble.WALCreateInfo) { t.tables.Add(1) },
		FlushEnd: func(i pebble.FlushInfo) {
			if i.Err == nil {
				t.failing.Store(nil)
				t.flushed.Store(true)
				t.tables.Add(int64(-i.Input))
				t.wake()
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.set.log.Error("jobqueue: the store is damaged", "details", i.String())
		},
	}
	l.EnsureDefaults(logger{s})
	return l
}

// A logger hears of what Pebble would end the process for.
type logger struct{ s *Store }

func (logger) Infof(string, ...any)                {}
func (logger) Errorf(string, ...any)               {}
func (l logger) Fatalf(format string, args ...any) { l.s.fail(fmt.Errorf(format, args...)) }

// A disk is between Pebble and the file system.
//
// Pebble answers a failed write of its log or its manifest with a panic, with Logger.Fatalf, or
// with a throw, which ends the process. So such an error is told to the store, which reports
// nothing as done from then on, and Pebble is told that all went well. From that moment nothing
// changes on the file system any more: what was durable stays as it was for the next Open.
//
// It also decides what a sync of the log is worth. Pebble keeps what it need not sync in memory,
// where kill -9 ends it; so every group is written with a sync, and the disk leaves out those that
// no one waits for.
type disk struct {
	vfs.FS
	s       *Store
	ending  chan struct{}
	failed  atomic.Bool
	waiting atomic.Int64 // groups under way that have to be synced
	later   atomic.Bool  // syncLater is under way
}

// vital says whether Pebble cannot go on without a file.
func vital(name string) bool {
	b := filepath.Base(name)
	return strings.HasSuffix(b, ".log") || strings.HasPrefix(b, "MANIFEST") ||
		strings.HasPrefix(b, "marker") || strings.HasPrefix(b, "OPTIONS")
}

func (d *disk) fail(err error) {
	d.failed.Store(true)
	d.s.fail(err)
}

func (d *disk) wrap(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		if !vital(name) {
			return nil, err
		}
		d.fail(err)
		f = nullFile{}
	}
	return &file{File: f, disk: d, vital: vital(name), log: strings.HasSuffix(name, ".log")}, nil
}

// Create implements vfs.FS.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if !vital(name) && (d.failed.Load() || d.s.stall.failing.Load() != nil) {
		select { // Pebble tries again and again
		case <-d.ending:
		case <-time.After(50 * time.Millisecond):
		}
	}
	if d.failed.Load() {
		if !vital(name) {
			return nil, store.ErrFailed
		}
		return d.wrap(nullFile{}, nil, name)
	}
	if copied, ok := copyOf(name); ok {
		f, err := createTwice(d.FS, name, copied, c)
		return d.wrap(f, err, name)
	}
	f, err := d.FS.Create(name, c)
	return d.wrap(f, err, name)
}

// ReuseForWrite implements vfs.FS.
func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.failed.Load() {
		return d.wrap(nullFile{}, nil, to)
	}
	f, err := d.FS.ReuseForWrite(from, to, c)
	return d.wrap(f, err, to)
}

// OpenDir implements vfs.FS.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &file{File: f, disk: d, vital: true}, nil
}

// Remove implements vfs.FS.
func (d *disk) Remove(name string) error {
	if d.failed.Load() {
		return nil
	}
	if copied, ok := copyOf(name); ok {
		_ = d.FS.Remove(copied) // an older version made none
	}
	return d.FS.Remove(name)
}

// Rename implements vfs.FS.
func (d *disk) Rename(from, to string) error {
	if d.failed.Load() {
		return nil
	}
	return d.FS.Rename(from, to)
}

// A file is a file that is written, or a directory.
type file struct {
	vfs.File
	disk  *disk
	vital bool
	log   bool
	dirty atomic.Bool // a sync of the log was left out
}

// did hides an error of a vital file.
func (f *file) did(err error) error {
	if err != nil && f.vital {
		f.disk.fail(err)
		return nil
	}
	return err
}

func (f *file) skip() bool { return f.vital && f.disk.failed.Load() }

// Write implements vfs.File.
func (f *file) Write(b []byte) (int, error) {
	if f.skip() {
		return len(b), nil
	}
	n, err := f.File.Write(b)
	if err = f.did(err); err == nil {
		n = len(b)
	}
	return n, err
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if f.skip() || f.leaveOut() {
		return nil
	}
	return f.did(f.File.Sync())
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	if f.skip() || f.leaveOut() {
		return nil
	}
	return f.did(f.File.SyncData())
}

func (f *file) leaveOut() bool {
	out := f.log && f.disk.waiting.Load() == 0
	f.dirty.Store(out)
	return out
}

// SyncTo implements vfs.File.
func (f *file) SyncTo(n int64) (bool, error) {
	if f.skip() {
		return true, nil
	}
	all, err := f.File.SyncTo(n)
	return all, f.did(err)
}

// Preallocate implements vfs.File.
func (f *file) Preallocate(offset, n int64) error {
	if f.skip() {
		return nil
	}
	return f.did(f.File.Preallocate(offset, n))
}

// Close implements vfs.File. A log must be whole before the next one is begun: Pebble takes one
// that is not for damaged unless it is the last.
func (f *file) Close() error {
	if f.dirty.Load() && !f.skip() {
		f.did(f.File.SyncData())
	}
	err := f.File.Close()
	if f.vital {
		return nil
	}
	return err
}

// A nullFile stands for one that could not be made.
type nullFile struct{ vfs.File }

func (nullFile) Write(b []byte) (int, error)    { return len(b), nil }
func (nullFile) Close() error                   { return nil }
func (nullFile) Fd() uintptr                    { return vfs.InvalidFd }
func (nullFile) Stat() (vfs.FileInfo, error)    { return nullInfo{}, nil }
func (nullFile) Prefetch(int64, int64) error    { return nil }
func (nullFile) Preallocate(int64, int64) error { return nil }
func (nullFile) Sync() error                    { return nil }
func (nullFile) SyncData() error                { return nil }
func (nullFile) SyncTo(int64) (bool, error)     { return true, nil }

type nullInfo struct{ fs.FileInfo }

func (nullInfo) Size() int64            { return 0 }
func (nullInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
