def pytest_configure(config):
    config.addinivalue_line("markers", "flower: starts Flower's own engines; `make test-flower` runs these")
