//! The second process of tests that need one; see `shuntfs_testkit::helper`.

fn main() {
    std::process::exit(shuntfs_testkit::helper::serve());
}
