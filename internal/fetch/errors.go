package fetch

// ChecksumError says that a download or a cached file isn't what was pinned.
type ChecksumError struct {
	File File
	From string // the URL, or the path in the cache, that gave the content
	Want string // SHA-256
	Got  string // SHA-256
}

func (e *ChecksumError) Error() string { return "" }

// OfflineError says that a file is neither in the cache nor local, and that
// the network may not be used.
type OfflineError struct {
	File File
	Path string // where the file belongs in the cache
}

func (e *OfflineError) Error() string { return "" }

// NoSpaceError says that the cache's file system is too full.
type NoSpaceError struct {
	Name string // file, or a description of several
	Dir  string
	Need int64 // bytes; 0 if not known
	Free int64 // bytes
}

func (e *NoSpaceError) Error() string { return "" }

// CacheError says that the cache directory can't be used.
type CacheError struct {
	Dir string
	Err error
}

func (e *CacheError) Error() string { return "" }

func (e *CacheError) Unwrap() error { return e.Err }
