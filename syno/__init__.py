"""Syno synthesizes operators that replace layers of neural networks.

The public names are listed in `__init__.pyi`. Each is loaded when it is first used, so `import syno` loads neither torch nor
any other large package.
"""

import lazy_loader

from syno.base.release import VERSION

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = VERSION
