//! The API server and its controllers, as a library.
